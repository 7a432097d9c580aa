package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"phalanx/nn"
	"phalanx/tensor"
)

// Sharded is an open checkpoint of several files. Ranks of any layout read from it what they need, several at once.
type Sharded struct {
	Manifest *Manifest
	dir      string

	mu    sync.Mutex
	files map[string]*File
	bytes int64 // read so far
}

// Weights are tensors under Hugging Face names: of one file, or of a checkpoint of any layout.
type Weights interface {
	Names() []string
	Float64s(name string) ([]float64, error) // a whole tensor
	Close() error
}

// OpenAny opens the weights of whatever a user names: a checkpoint, a folder of checkpoints (its newest), or what
// OpenWeights takes.
func OpenAny(path string) (Weights, error) {
	dir, err := Latest(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestName)); err == nil {
		return OpenSharded(dir)
	}
	return OpenWeights(dir)
}

// OpenSharded reads the manifest of a checkpoint folder and checks that every file is there in its size. What is wrong is
// a *FormatError; a folder without a manifest is an fs.ErrNotExist.
func OpenSharded(dir string) (*Sharded, error) {
	path := filepath.Join(dir, ManifestName)
	st, err := os.Stat(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if st.Size() > ManifestBytesMax {
		return nil, &FormatError{Path: path, Kind: ErrManifest, Found: fmt.Sprintf("%d bytes", st.Size()), Expected: fmt.Sprintf("at most %d", ManifestBytesMax)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	m, err := DecodeManifest(b, path)
	if err != nil {
		return nil, err
	}
	s := &Sharded{Manifest: m, dir: dir, files: map[string]*File{}}
	for _, f := range m.Files {
		if err := s.present(f); err != nil {
			return nil, err
		}
	}
	return s, s.sameModel()
}

// sameModel checks that config.json, which is for readers, says what the manifest says under its checksum.
func (s *Sharded) sameModel() error {
	path := filepath.Join(s.dir, ConfigName)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &FormatError{Path: path, Kind: ErrCorrupt, Found: "no file", Expected: "the model as " + ManifestName + " has it"}
	case err != nil:
		return openError(path, err)
	case !sameJSON(b, s.Manifest.Model):
		return &FormatError{Path: path, Kind: ErrCorrupt, Found: "other keys", Expected: "the model as " + ManifestName + " has it, unchanged"}
	}
	return nil
}

// sameJSON compares two JSON texts but for their white space.
func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// present checks that a file is there, whole, and names a tensor that is lost with it.
func (s *Sharded) present(f InFile) error {
	path := filepath.Join(s.dir, f.Name)
	st, err := os.Stat(path)
	if err == nil && st.Size() == f.Bytes {
		return nil
	}
	found := "no file"
	switch {
	case err == nil:
		found = fmt.Sprintf("%d bytes", st.Size())
	case !errors.Is(err, fs.ErrNotExist):
		return openError(path, err)
	}
	return &FormatError{Path: path, Tensor: s.firstOf(f.Name), Kind: ErrTruncated, Found: found,
		Expected: fmt.Sprintf("%d bytes as the manifest has it; load an older checkpoint", f.Bytes)}
}

// firstOf is the first tensor that has a piece in a file.
func (s *Sharded) firstOf(file string) string {
	for _, t := range s.Manifest.Tensors {
		if slices.ContainsFunc(t.Pieces, func(p Piece) bool { return p.File == file }) {
			return t.Name
		}
	}
	return ""
}

// Close closes every file.
func (s *Sharded) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	clear(s.files)
	return err
}

// Path is the folder.
func (s *Sharded) Path() string { return s.dir }

// Names is the weights in ascending order, expert biases among them; the optimizer's tensors are not.
func (s *Sharded) Names() []string {
	var names []string
	for _, t := range s.Manifest.Tensors {
		if !strings.Contains(t.Name, "/") {
			names = append(names, t.Name)
		}
	}
	return names
}

// Has says whether there is a tensor of this name.
func (s *Sharded) Has(name string) bool {
	_, err := s.record(name)
	return err == nil
}

// BytesRead is how many bytes of tensors have been read so far.
func (s *Sharded) BytesRead() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// record is the tensor of a name.
func (s *Sharded) record(name string) (*Record, error) {
	all := s.Manifest.Tensors
	i := sort.Search(len(all), func(i int) bool { return all[i].Name >= name })
	if i < len(all) && all[i].Name == name {
		return &all[i], nil
	}
	return nil, &FormatError{Path: s.manifestPath(), Tensor: name, Kind: ErrNoTensor,
		Found: fmt.Sprintf("%d tensors, none of this name", len(all)), Expected: "the tensor" + nearest(name, s.Names())}
}

func (s *Sharded) manifestPath() string { return filepath.Join(s.dir, ManifestName) }

// Float64s is a whole tensor.
func (s *Sharded) Float64s(name string) ([]float64, error) {
	t, err := s.record(name)
	if err != nil {
		return nil, err
	}
	spec := nn.Spec{Name: name, Shape: t.Shape, Shard: nn.Unsharded}
	out := make([]float64, spec.Elements())
	return out, Read(s, name, &spec, 0, out)
}

// Read fills dst with elements from on of a shard of a tensor, row-major in the shard's shape, however the tensor is cut
// in the files. Only the blocks that hold them are read, and the checksum of each is compared. F64 is rounded to float32.
func Read[T tensor.Float](s *Sharded, name string, want *nn.Spec, from int, dst []T) error {
	t, err := s.record(name)
	if err != nil {
		return err
	}
	if !slices.Equal(t.Shape, want.Shape) {
		return &FormatError{Path: s.manifestPath(), Tensor: name, Kind: ErrMismatch, Found: fmt.Sprintf("shape %v", t.Shape),
			Expected: fmt.Sprintf("%v as the scenario's model has it", want.Shape)}
	}
	to, have := cutOf(want.Shape, want.Shard.Dim, want.Shard.Parts), cutOf(t.Shape, t.Dim, t.Parts)
	open := make([]*pieceReader, len(t.Pieces))
	for at := 0; at < len(dst); {
		global, n := to.global(want.Shard.Index, from+at)
		index, local, m := have.shard(global)
		p := t.piece(index, local)
		n = min(n, m, len(dst)-at, t.Pieces[p].To-local)
		if open[p] == nil {
			if open[p], err = s.reader(t, &t.Pieces[p]); err != nil {
				return err
			}
		}
		if err := elements(open[p], local-t.Pieces[p].From, dst[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// piece is the number of the piece that holds element local of a shard. Pieces are ascending and whole.
func (t *Record) piece(index, local int) int {
	return sort.Search(len(t.Pieces), func(i int) bool {
		p := &t.Pieces[i]
		return p.Index > index || p.Index == index && p.To > local
	})
}

// elements reads elements from at on of a piece.
func elements[T tensor.Float](r *pieceReader, at int, dst []T) error {
	if r.size == tensor.DTypeOf[T]().Size() {
		return r.copy(tensor.Bytes(dst), at*r.size)
	}
	b := make([]byte, len(dst)*r.size)
	if err := r.copy(b, at*r.size); err != nil {
		return err
	}
	for i := range dst {
		if r.size == 8 {
			dst[i] = T(math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
		} else {
			dst[i] = T(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		}
	}
	return nil
}
