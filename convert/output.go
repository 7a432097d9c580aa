package convert

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"phalanx/checkpoint"
)

// output is a folder in the making: files are written aside, in FOLDER.partial, which takes the folder's name when it is
// whole. A reader sees all of it or nothing.
type output struct {
	dir, aside string
	copy       *copier
	bytes      int64
	files      []string
}

// scenarioFile is the scenario beside an imported checkpoint.
const scenarioFile = "scenario.yaml"

// newOutput begins a folder. One that has something in it is left alone.
func newOutput(dir string, c *copier) (*output, error) {
	dir = filepath.Clean(dir)
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return nil, one(dir, "", "is not empty, expected a folder that is not there yet: nothing is overwritten")
	}
	if err != nil && !os.IsNotExist(err) {
		return nil, one(dir, "", "cannot be written: %v; expected a folder that is not there yet", cause(err))
	}
	o := &output{dir: dir, aside: dir + ".partial", copy: c}
	if err := o.clear(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.aside, 0o755); err != nil {
		return nil, one(dir, "", "cannot be made: %v; choose another folder", cause(err))
	}
	return o, nil
}

// clear removes what a conversion that was killed has left, and nothing else.
func (o *output) clear() error {
	entries, err := os.ReadDir(o.aside)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return one(o.aside, "", "is in the way: %v", cause(err))
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".partial")
		if e.IsDir() || name != checkpoint.ConfigName && name != indexName && name != scenarioFile && filepath.Ext(name) != ".safetensors" {
			return one(o.aside, "", "is in the way and has %s in it, which no conversion writes; move it elsewhere", e.Name())
		}
	}
	if err := os.RemoveAll(o.aside); err != nil {
		return one(o.aside, "", "is in the way: %v", cause(err))
	}
	return nil
}

// path is where a file is written for now.
func (o *output) path(name string) string { return filepath.Join(o.aside, name) }

// text writes a small file.
func (o *output) text(name string, b []byte) error {
	o.files = append(o.files, name)
	if err := os.WriteFile(o.path(name), b, 0o644); err != nil {
		return fmt.Errorf("%s: cannot be written: %v", name, cause(err))
	}
	return nil
}

// commit puts the folder in its place.
func (o *output) commit() error {
	if err := os.Remove(o.dir); err != nil && !os.IsNotExist(err) { // an empty one
		return err
	}
	return os.Rename(o.aside, o.dir)
}

// abandon removes what was written.
func (o *output) abandon() { _ = os.RemoveAll(o.aside) }

func cause(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}

// dtypeOf is the type that a route is written in: the one asked for, or its own; wide tensors are never narrowed.
func dtypeOf(r route, asked string) string {
	to := cmp.Or(asked, r.dtype)
	if r.Wide && widths[to] < 4 {
		to = "F32"
	}
	return to
}

// infoOf describes a tensor to write.
func infoOf(r route, asked string) checkpoint.Info {
	return checkpoint.Info{Name: r.Name, DType: dtypeOf(r, asked), Shape: r.Shape}
}

// file writes tensors into one safetensors file.
func (o *output) file(name string, t Tensors, rs []route, asked string, meta map[string]string) error {
	infos, by := make([]checkpoint.Info, len(rs)), make(map[string]route, len(rs))
	for i, r := range rs {
		infos[i] = infoOf(r, asked)
		by[r.Name] = r
		n, _ := infos[i].Bytes()
		o.bytes += n
	}
	o.files = append(o.files, name)
	return checkpoint.WriteStream(o.path(name), infos, meta, func(w io.Writer, name string) error {
		return o.copy.tensor(w, t, by[name], dtypeOf(by[name], asked))
	})
}

// split cuts tensors into files of at most limit bytes, in order; a tensor that is larger has a file of its own.
func split(rs []route, asked string, limit int64) [][]route {
	var out [][]route
	room := int64(0)
	for _, r := range rs {
		n, _ := infoOf(r, asked).Bytes()
		if len(out) == 0 || n > room {
			out, room = append(out, nil), limit
		}
		out[len(out)-1] = append(out[len(out)-1], r)
		room -= n
	}
	return out
}

// shards writes tensors into model-00001-of-0000N.safetensors and their index, with the metadata that Hugging Face's
// loaders ask for.
func (o *output) shards(t Tensors, rs []route, asked string, limit int64) error {
	parts := split(rs, asked, limit)
	where := map[string]string{}
	for i, part := range parts {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(parts))
		for _, r := range part {
			where[r.Name] = name
		}
		if err := o.file(name, t, part, asked, map[string]string{"format": "pt"}); err != nil {
			return err
		}
	}
	return o.text(indexName, indexJSON(where, o.bytes))
}

// indexJSON is model.safetensors.index.json: the bytes of all tensors, and the file of each, names ascending.
func indexJSON(where map[string]string, total int64) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	for i, name := range sortedKeys(where) {
		fmt.Fprintf(&b, "%s\n    %s: %s", strings.Repeat(",", min(i, 1)), quoteJSON(name), quoteJSON(where[name]))
	}
	b.WriteString("\n  }\n}\n")
	return []byte(b.String())
}
