package convert

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"phalanx/config"
)

// key is one key of the model section: Megatron's name, its value as YAML (JSON is YAML), and where it comes from.
type key struct {
	name, value string
	from        field
}

// scenarioBelow stands below a model section so that the whole can be checked, and run: one step on tokens of no meaning.
const scenarioBelow = `train: {train_iters: 1, micro_batch_size: 1, global_batch_size: 1}
optimizer: {lr: 0}
dataset: {kind: synthetic, seq_length: 16}
`

// modelOf checks keys as the scenario reader does and gives the model with defaults filled in. Problems are told at the
// field that a key comes from. A model that is only too large to train here is converted all the same, with a note.
func modelOf(keys []key, path string) (m *config.Model, notes []string, problems Problems) {
	var b strings.Builder
	b.WriteString("model:\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "  %s: %s\n", k.name, k.value)
	}
	file, found := config.Parse(path, []byte(b.String()+scenarioBelow), nil)
	for _, p := range found {
		if p.Key == "model" && strings.Contains(p.Message, "parameters") {
			notes = append(notes, "the model "+p.Message)
			continue
		}
		problems = append(problems, keyProblem(keys, p, path))
	}
	m = &file.Base.Model
	return m, notes, problems
}

// keyProblem is a problem of the scenario reader, at the field that the key on its line comes from. The key of line n,
// the first line being model:, is number n-2.
func keyProblem(keys []key, p config.Problem, path string) Problem {
	if i := p.Line - 2; p.Key != "" && i >= 0 && i < len(keys) && p.Key == "model."+keys[i].name && keys[i].from.name != "" {
		return Problem{Where: keys[i].from.at, Name: keys[i].from.name, Text: p.Key + ": " + p.Message}
	}
	return Problem{Where: path, Name: p.Key, Text: p.Message}
}

// valueOf is a key of the model section as a Go value; false when this version has no such key.
func valueOf(m *config.Model, name string) (reflect.Value, bool) {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ","); tag == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// checkpointModel reads config.json of a checkpoint of this program: the model section under its own names. A zero that
// stands for "none" is left to the default.
func checkpointModel(o *object) (*config.Model, []string, error) {
	info := map[string]config.KeyInfo{}
	for _, k := range config.Keys() {
		info[k.Name] = k
	}
	var keys []key
	for _, f := range o.fields {
		def := info["model."+f.name].Default
		zero := slices.Contains([]string{"null", `""`, "[]", "{}"}, f.text())
		if f.text() == "0" && (def == "" || strings.HasPrefix(def, "= ")) || zero {
			continue
		}
		keys = append(keys, key{name: f.name, value: string(f.raw), from: f})
	}
	for i := range keys { // one line each: problems are found by their line
		keys[i].value = compact(keys[i].value)
	}
	m, notes, problems := modelOf(keys, o.path)
	return m, notes, problems.err()
}

func compact(raw string) string {
	var b strings.Builder
	var v any
	d := json.NewDecoder(strings.NewReader(raw))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return raw
	}
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return raw
	}
	return strings.TrimSpace(b.String())
}

// numberText is the shortest decimal that reads back as x.
func numberText(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}
