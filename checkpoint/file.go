package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Names of the files of a checkpoint folder, those Hugging Face uses.
const (
	WeightsName = "model.safetensors"
	ConfigName  = "config.json"
	indexName   = "model.safetensors.index.json"
)

// File is an open safetensors file. The header is in memory, tensors are read when asked for. It may be read from
// several goroutines at once.
type File struct {
	path  string
	r     io.ReaderAt
	close func() error
	start int64 // offset of the data
	infos map[string]Info
	names []string
	meta  map[string]string
}

// Open opens a safetensors file and checks its header against its size. Close it when done. What is wrong with the
// file is a *FormatError; a file that is not there is an fs.ErrNotExist.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, openError(path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = &FormatError{Path: path, Kind: ErrFormat, Found: "a " + kindOf(st.Mode()), Expected: "a safetensors file"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	out, err := Parse(f, st.Size(), path)
	if err != nil {
		f.Close()
		return nil, err
	}
	out.close = f.Close
	return out, nil
}

// OpenWeights opens the weights a user names: a safetensors file, or a folder that holds model.safetensors.
func OpenWeights(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, openError(path, err)
	}
	if !st.IsDir() {
		return Open(path)
	}
	f, err := Open(filepath.Join(path, WeightsName))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	found := "a folder without it"
	if _, err := os.Stat(filepath.Join(path, indexName)); err == nil {
		found = "weights split over several files (" + indexName + "), which is not supported"
	}
	return nil, &FormatError{Path: path, Kind: ErrFormat, Found: found, Expected: "a file " + WeightsName + ", or " + ManifestName + " of a checkpoint"}
}

// Parse reads a file of size bytes from r. name stands for it in errors.
func Parse(r io.ReaderAt, size int64, name string) (*File, error) {
	p, start, err := readHeader(r, size, name)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(p.infos))
	return &File{path: name, r: r, start: start, infos: p.infos, names: names, meta: p.meta}, nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// Path is the name the file was opened by.
func (f *File) Path() string { return f.path }

// Names is the names of all tensors, ascending. The slice is the caller's.
func (f *File) Names() []string { return slices.Clone(f.names) }

// Metadata is a copy of the file's metadata.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Info describes a tensor; false when there is none of that name.
func (f *File) Info(name string) (Info, bool) {
	i, ok := f.infos[name]
	i.Shape = slices.Clone(i.Shape)
	return i, ok
}

// info is the description of a tensor that must be there.
func (f *File) info(name string) (Info, error) {
	i, ok := f.infos[name]
	if !ok {
		return i, &FormatError{Path: f.path, Tensor: name, Kind: ErrNoTensor,
			Found: fmt.Sprintf("%d tensors, none of this name", len(f.names)), Expected: "the tensor" + nearest(name, f.names)}
	}
	return i, nil
}

func openError(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", path, pe.Err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func kindOf(m fs.FileMode) string {
	if m.IsDir() {
		return "folder"
	}
	return "special file"
}

// nearest is ` (nearest: "…")`: the name that shares the longest beginning and end with the wanted one.
func nearest(name string, names []string) string {
	best, score := "", 0
	for _, n := range names {
		if s := affinity(name, n); s > score {
			best, score = n, s
		}
	}
	if 2*score < len(name) {
		return ""
	}
	return fmt.Sprintf(" (nearest name: %q)", best)
}

// affinity is the length of the common beginning plus that of the common end.
func affinity(a, b string) int {
	n := min(len(a), len(b))
	front := 0
	for front < n && a[front] == b[front] {
		front++
	}
	back := 0
	for back < n-front && a[len(a)-1-back] == b[len(b)-1-back] {
		back++
	}
	return front + back
}
