package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/internal/golden"
)

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
