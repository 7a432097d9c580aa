// Package convert turns models of Hugging Face into checkpoints of this program and back: config.json into the model
// section of a scenario, tensors by name, shards with their index. Tensors are streamed in pieces, so that memory does
// not depend on the model's size. What this version cannot take is refused by name.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/internal/golden"
)

// ShardBytes is the usual size of a shard: what Hugging Face's own writer takes.
const ShardBytes = 5_000_000_000

// Options say what to make of a model.
type Options struct {
	DType        string // fp32, bf16 or fp64; "": fp32 on import, as stored on export
	DropMTP      bool   // leave all MTP layers out
	ShardBytes   int64  // largest shard on export; 0: ShardBytes
	Architecture string // model_type on export; "": the first that is this model
	DryRun       bool   // check everything that can be checked without writing
}

// Report says what became of a model.
type Report struct {
	From         string   `json:"from"`
	To           string   `json:"to"`
	Direction    string   `json:"direction"` // import or export
	Architecture string   `json:"architecture"`
	Read         []string `json:"read"`  // element types
	Wrote        []string `json:"wrote"` // element types
	Parameters   int64    `json:"parameters"`
	MTPLayers    int      `json:"mtp_layers"` // kept
	Tensors      int      `json:"tensors"`    // written
	Bytes        int64    `json:"bytes"`      // of the tensors written
	Files        []string `json:"files"`
	Checked      []Left   `json:"checked"` // copies found equal, and left out
	Dropped      []Left   `json:"dropped"`
	Added        []Left   `json:"added"`   // tensors written that the source has not
	Ignored      []string `json:"ignored"` // fields of config.json that change nothing here
	Notes        []string `json:"notes"`
	DryRun       bool     `json:"dry_run"`
	Model        []string `json:"model"` // the model section, a line a key
}

// Convert converts FROM into the new folder TO. FROM is a folder of Hugging Face (config.json with model_type), a
// checkpoint of this program, or a reference case. Input that cannot be taken is Problems, a *checkpoint.FormatError or a
// *golden.Error; then nothing is written.
func Convert(ctx context.Context, from, to string, o Options) (*Report, error) {
	if o.DType != "" && stored[o.DType] == "" {
		return nil, one("--dtype", "", "found %q, expected fp32, bf16 or fp64", o.DType)
	}
	if o.ShardBytes == 0 {
		o.ShardBytes = ShardBytes
	}
	j := &job{copy: newCopier(ctx), o: o, r: &Report{From: from, To: to, DryRun: o.DryRun}}
	defer j.close()
	if strings.HasSuffix(from, ".json") && filepath.Base(from) != checkpoint.ConfigName {
		return j.r, j.fromCase(from)
	}
	dir, err := folder(from)
	if err != nil {
		return nil, err
	}
	c, err := readObject(filepath.Join(dir, checkpoint.ConfigName))
	if err != nil {
		return nil, err
	}
	if _, ours := c.get("num_layers"); ours {
		return j.r, j.toHF(dir, c)
	}
	return j.r, j.fromHF(dir, c)
}

// folder is the folder of config.json: the one that is named, or that of its newest checkpoint.
func folder(from string) (string, error) {
	if filepath.Base(from) == checkpoint.ConfigName {
		from = filepath.Dir(from)
	}
	st, err := os.Stat(from)
	switch {
	case err != nil:
		return "", fileError(from, err)
	case !st.IsDir():
		return "", one(from, "", "is a file, expected a folder of Hugging Face, a checkpoint or a reference case (NAME.json)")
	}
	return checkpoint.Latest(from)
}

// job is one conversion.
type job struct {
	copy *copier
	o    Options
	r    *Report
	t    Tensors
	m    *config.Model
}

func (j *job) close() {
	if j.t != nil {
		_ = j.t.Close() // it was only read
	}
}

// fromHF imports a folder of Hugging Face.
func (j *job) fromHF(dir string, c *object) error {
	a, err := find(c)
	if err != nil {
		return err
	}
	keys, ignored, problems := readConfig(c, a, j.o.DropMTP)
	if len(problems) > 0 {
		return unique(problems)
	}
	m, notes, problems := modelOf(keys, c.path)
	if len(problems) > 0 {
		return problems
	}
	t, more, err := openTensors(dir)
	if err != nil {
		return err
	}
	j.r.Architecture, j.r.Ignored, j.r.Notes = a.kind, ignored, append(notes, more...)
	j.section(keys)
	return j.imported(m, t, dir)
}

// fromCase imports the weights of a reference case.
func (j *job) fromCase(path string) error {
	c, err := golden.Load(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return one(path, "", "cannot be read: no such file; expected a folder or a reference case")
		}
		return err
	}
	defer c.Close()
	o, err := caseConfig(path)
	if err != nil {
		return err
	}
	m, notes, err := checkpointModel(o)
	if err != nil {
		return err
	}
	weights := strings.TrimSuffix(path, ".json") + ".safetensors"
	f, err := checkpoint.Open(weights)
	if err != nil {
		return err
	}
	j.r.Architecture, j.r.Notes = "reference case", notes
	var keys []key
	for _, f := range o.fields {
		if !f.null() {
			keys = append(keys, key{name: f.name, value: f.text()})
		}
	}
	j.section(keys)
	return j.imported(m, below{f, "params/"}, weights)
}

// caseConfig is the object "config" of a case.
func caseConfig(path string) (*object, error) {
	o, err := readObject(path)
	if err != nil {
		return nil, err
	}
	f, ok := o.get("config")
	if !ok {
		return nil, one(path, "config", "is missing")
	}
	return parseObject(path, f.raw)
}

// section keeps the model section for the report and the scenario.
func (j *job) section(keys []key) {
	for _, k := range keys {
		line := k.name + ": " + k.value
		if k.from.name != "" && k.from.name != k.name {
			line = fmt.Sprintf("%-46s # %s", line, k.from.name)
		}
		j.r.Model = append(j.r.Model, line)
	}
}

// imported writes a checkpoint of this program and a scenario that loads it.
func (j *job) imported(m *config.Model, t Tensors, where string) error {
	j.r.Direction, j.m, j.t = "import", m, t
	dtype := "F32"
	if j.o.DType != "" {
		dtype = stored[j.o.DType]
	}
	r, err := j.route(where)
	if err != nil {
		return err
	}
	if err := j.checkCopies(r, where); err != nil || j.o.DryRun {
		return err
	}
	return j.write(func(out *output) error {
		if err := checkpoint.WriteConfig(out.aside, m); err != nil {
			return err
		}
		out.files = append(out.files, checkpoint.ConfigName)
		if err := out.text(scenarioFile, scenarioText(j.r)); err != nil {
			return err
		}
		return out.file(checkpoint.WeightsName, t, r.routes, dtype, map[string]string{"format": "pt"})
	})
}

// toHF exports a checkpoint of this program.
func (j *job) toHF(dir string, c *object) error {
	m, notes, err := checkpointModel(c)
	if err != nil {
		return err
	}
	t, more, err := openTensors(dir)
	if err != nil {
		return err
	}
	j.r.Direction, j.r.Notes, j.m, j.t = "export", append(notes, more...), m, t
	whole := *m
	if j.o.DropMTP {
		m.MTPNumLayers, m.MTPUseRepeatedLayer = 0, false
	}
	r, err := j.route(dir)
	if err != nil {
		return err
	}
	asked := stored[j.o.DType]
	a, w, err := exported(m, j.o.Architecture, torch[common(r.routes, asked)])
	if err != nil {
		return err
	}
	if j.o.DropMTP && whole.MTPNumLayers == 0 {
		j.r.Notes = append(j.r.Notes, "--drop-mtp: the model has no MTP layer")
	}
	j.r.Architecture = a.kind
	routes := j.completed(r.routes, w)
	j.count(routes, asked)
	if j.o.DryRun {
		return nil
	}
	return j.write(func(out *output) error {
		if err := out.text(checkpoint.ConfigName, w.configJSON()); err != nil {
			return err
		}
		return out.shards(t, routes, asked, j.o.ShardBytes)
	})
}

// route finds the source of every tensor.
func (j *job) route(where string) (*router, error) {
	r := &router{t: j.t, where: where, m: j.m, used: map[string]bool{}}
	r.find(Parameters(j.m), j.o.DropMTP)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	asked := stored[j.o.DType]
	if asked == "" && j.r.Direction == "import" {
		asked = "F32"
	}
	j.count(r.routes, asked)
	j.r.Dropped, j.r.MTPLayers = r.left, storedDepths(j.m)
	if j.o.DropMTP && len(r.left) == 0 && j.r.Direction == "import" {
		j.r.Notes = append(j.r.Notes, "--drop-mtp: the model has no MTP layer")
	}
	return r, nil
}

// checkCopies compares what an MTP layer says again, before anything is written.
func (j *job) checkCopies(r *router, where string) error {
	for _, d := range r.duplicates {
		if err := j.copy.same(j.t, d, where); err != nil {
			return err
		}
		j.r.Checked = append(j.r.Checked, Left{d.name, "equals " + d.of})
	}
	return nil
}

// completed adds what the architecture has beside the model's own tensors: the copies that MTP layers hold, and biases
// of zero. They stand behind the layer they belong to.
func (j *job) completed(rs []route, w *writer) []route {
	by := map[string]route{}
	for _, r := range rs {
		by[r.Name] = r
	}
	out := slices.Clone(rs)
	for k := range storedDepths(j.m) {
		for _, d := range depthCopies(j.m, k) {
			r := by[d.of]
			r.Name = d.name
			out = append(out, r)
			j.r.Added = append(j.r.Added, Left{d.name, "copy of " + d.of})
		}
	}
	for _, p := range w.zeros {
		out = append(out, route{Param: p, dtype: "F32", count: int64(p.Shape[0])})
		j.r.Added = append(j.r.Added, Left{p.Name, "zero: the architecture has an expert bias"})
	}
	return out
}

// count fills in the report's figures of tensors to write.
func (j *job) count(rs []route, asked string) {
	read, wrote := map[string]bool{}, map[string]bool{}
	j.r.Tensors, j.r.Parameters, j.r.Bytes = len(rs), 0, 0
	for _, r := range rs {
		n, _ := infoOf(r, asked).Bytes()
		j.r.Bytes += n
		j.r.Parameters += r.count
		wrote[dtypeOf(r, asked)] = true
		if r.source != "" {
			read[r.dtype] = true
		}
	}
	j.r.Read, j.r.Wrote = sortedKeys(read), sortedKeys(wrote)
}

// write makes the folder with what fill writes into it.
func (j *job) write(fill func(out *output) error) error {
	out, err := newOutput(j.r.To, j.copy)
	if err != nil {
		return err
	}
	if err := fill(out); err != nil {
		out.abandon()
		return err
	}
	if err := out.commit(); err != nil {
		out.abandon()
		return fmt.Errorf("%s: cannot be put in its place: %v", j.r.To, cause(err))
	}
	j.r.Files, j.r.Bytes = out.files, out.bytes
	if _, err := os.Stat(j.r.To); err != nil {
		return fileError(j.r.To, err)
	}
	return nil
}

// common is the type of most elements to write.
func common(rs []route, asked string) string {
	n := map[string]int64{}
	for _, r := range rs {
		n[dtypeOf(r, asked)] += r.count
	}
	best := ""
	for _, t := range sortedKeys(n) {
		if best == "" || n[t] > n[best] {
			best = t
		}
	}
	return best
}

// unique drops repetitions: a field may be read for several keys.
func unique(ps Problems) Problems {
	var out Problems
	for _, p := range ps {
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// scenarioText is a scenario that loads the checkpoint beside it and does one step on tokens of no meaning.
func scenarioText(r *Report) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nabout: %s weights, imported. One step without learning shows that they load; set data, steps and learning rate.\nmodel:\n",
		scenarioName(r.To), r.Architecture)
	for _, line := range r.Model {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString(scenarioBelow + "checkpoint: {load: model.safetensors}\nexpect: [{finite: true}]\n")
	return []byte(b.String())
}

// scenarioName is the folder's name in letters that a scenario's name may have.
func scenarioName(dir string) string {
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c) {
			return c
		}
		return '-'
	}, filepath.Base(filepath.Clean(dir)))
	if strings.Trim(name, "-_.") == "" {
		return "imported"
	}
	return quoteJSON(name)
}
