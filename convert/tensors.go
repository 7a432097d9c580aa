package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/checkpoint"
)

// Tensors are weights to read: a safetensors file, or several that act as one. checkpoint.File and checkpoint.Sharded are such.
type Tensors interface {
	// Names are the names of all tensors, ascending.
	Names() []string
	// Info describes a tensor; false when there is none of that name.
	Info(name string) (checkpoint.Info, bool)
	// ReadAt fills p with the bytes of a tensor from an offset on.
	ReadAt(name string, p []byte, off int64) error
	Close() error
}

const indexName = "model.safetensors.index.json"

// openTensors opens the weights of a folder: a checkpoint of any layout, Hugging Face's shards with an index, or one file.
// notes are what is odd and harmless.
func openTensors(dir string) (t Tensors, notes []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, checkpoint.ManifestName)); err == nil {
		s, err := checkpoint.OpenSharded(dir)
		return s, nil, err
	}
	index := filepath.Join(dir, indexName)
	if _, err := os.Stat(index); err == nil {
		return openShards(dir, index)
	}
	f, err := checkpoint.Open(filepath.Join(dir, checkpoint.WeightsName))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, nil, err
	}
	found := "neither"
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			found = name
		}
	}
	return nil, nil, one(dir, "", "found %s, expected %s or %s", found, checkpoint.WeightsName, indexName)
}

// shards are several files with the tensors of one model.
type shards struct {
	files []*checkpoint.File
	home  map[string]*checkpoint.File
}

// openShards opens the files that an index names. Index and files must agree on where each tensor is.
func openShards(dir, index string) (*shards, []string, error) {
	o, err := readObject(index)
	if err != nil {
		return nil, nil, err
	}
	f, ok := o.get("weight_map")
	where := map[string]string{}
	if !ok || !f.into(&where) {
		return nil, nil, one(index, "weight_map", "is missing or no object of names, expected the file of each tensor")
	}
	s := &shards{home: map[string]*checkpoint.File{}}
	if err := s.open(dir, index, where); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return s, s.sizeNote(o), nil
}

func (s *shards) open(dir, index string, where map[string]string) error {
	var problems Problems
	bad := func(name, format string, args ...any) {
		problems = append(problems, Problem{Where: index, Name: name, Text: fmt.Sprintf(format, args...)})
	}
	names := map[string]bool{}
	for _, file := range where {
		names[file] = true
	}
	for _, file := range sortedKeys(names) {
		if file != filepath.Base(file) || strings.ContainsAny(file, `/\`) || !strings.HasSuffix(file, ".safetensors") {
			bad("weight_map", "found the file %q, expected a .safetensors file of the same folder", file)
			continue
		}
		f, err := checkpoint.Open(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			bad("weight_map", "names the file %q, which is not there", file)
			continue
		}
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
		for _, name := range f.Names() {
			if where[name] != file {
				bad(name, "is in %s, and the index says %q", file, where[name])
			}
			s.home[name] = f
		}
	}
	for _, name := range sortedKeys(where) {
		if names[where[name]] && s.home[name] == nil && len(problems) == 0 {
			bad(name, "is not in %s, where the index says it is", where[name])
		}
	}
	return problems.err()
}

// sizeNote compares the index's total_size, which some published models have wrong, with the tensors'.
func (s *shards) sizeNote(o *object) []string {
	var meta struct {
		TotalSize float64 `json:"total_size"`
	}
	f, ok := o.get("metadata")
	if !ok || !f.into(&meta) || meta.TotalSize == 0 {
		return nil
	}
	total := int64(0)
	for name := range s.home {
		i, _ := s.Info(name)
		total += i.To - i.From
	}
	if int64(meta.TotalSize) == total {
		return nil
	}
	return []string{fmt.Sprintf("%s: metadata.total_size is %.0f, the tensors have %d bytes", o.path, meta.TotalSize, total)}
}

// Names implements Tensors.
func (s *shards) Names() []string { return sortedKeys(s.home) }

// Info implements Tensors.
func (s *shards) Info(name string) (checkpoint.Info, bool) {
	f := s.home[name]
	if f == nil {
		return checkpoint.Info{}, false
	}
	return f.Info(name)
}

// ReadAt implements Tensors.
func (s *shards) ReadAt(name string, p []byte, off int64) error {
	f := s.home[name]
	if f == nil {
		return one(name, "", "no such tensor")
	}
	return f.ReadAt(name, p, off)
}

// Close closes all files.
func (s *shards) Close() error {
	var err error
	for _, f := range s.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// below are the tensors below a prefix, under their names without it: the weights of a reference case.
type below struct {
	Tensors
	prefix string
}

// Names implements Tensors.
func (b below) Names() []string {
	var out []string
	for _, n := range b.Tensors.Names() {
		if name, ok := strings.CutPrefix(n, b.prefix); ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Info implements Tensors.
func (b below) Info(name string) (checkpoint.Info, bool) {
	i, ok := b.Tensors.Info(b.prefix + name)
	i.Name = name
	return i, ok
}

// ReadAt implements Tensors.
func (b below) ReadAt(name string, p []byte, off int64) error {
	return b.Tensors.ReadAt(b.prefix+name, p, off)
}
