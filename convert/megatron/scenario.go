package megatron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"phalanx/config"
	"phalanx/convert"
)

// entry is one key of the scenario, why it is there, and the place to blame for it.
type entry struct {
	key, value string // value as YAML
	why        string // the flag, or Megatron's default
	flag       flag
}

// maker makes a scenario of flags.
type maker struct {
	source   string // for problems that no flag has
	flags    map[string]flag
	order    []string
	world    int // 0: the launcher does not say
	keys     map[string]config.KeyInfo
	entries  []entry
	remarks  []string // flags that change nothing, with why
	problems convert.Problems
}

// Scenario is a command line as a scenario, source being the file it is from: canonical order, each key with the flag it comes from, and a comment for each
// flag that changes nothing here. A flag that is unknown or not supported is a problem, as is a value that the scenario
// reader refuses; then there is no text.
func Scenario(source string, l Line) ([]byte, error) {
	m := &maker{source: source, keys: map[string]config.KeyInfo{}, world: worldSize(l.Launcher)}
	for _, k := range config.Keys() {
		m.keys[k.Name] = k
	}
	var err error
	if m.flags, m.order, err = flags(l.Args); err != nil {
		return nil, err
	}
	for _, f := range m.order {
		m.take(m.flags[f])
	}
	m.model()
	m.attention()
	m.feedForward()
	m.parallel()
	m.train()
	m.data()
	text := m.text()
	m.check(text)
	if len(m.problems) > 0 {
		return nil, m.problems
	}
	return text, nil
}

// take is what becomes of a flag that needs no other.
func (m *maker) take(f flag) {
	switch key := m.keyOf(f.name); {
	case slices.Contains(switches, f.name) && len(f.values) > 0:
		m.fail(f.problem("found %s, expected no value", strings.Join(f.values, " ")))
	case slices.Contains(special, f.name):
	case refused[f.name] != "":
		m.fail(f.problem("changes what is computed: %s", refused[f.name]))
	case off[f.name] != "":
		m.known(off[f.name], f)
		m.add(off[f.name], "false", "--"+f.name, f)
	case key != "":
		m.set(key, f)
	case whyIgnored(f.name) != "":
		m.remark(f, whyIgnored(f.name))
	default:
		m.fail(f.problem("is no flag that this version knows%s", m.unknown(f.name)))
	}
}

// keyOf is the key of a flag of the same or another name; "" if there is none.
func (m *maker) keyOf(name string) string {
	if key := rename[name]; key != "" {
		return key
	}
	leaf := strings.ReplaceAll(name, "-", "_")
	for _, section := range []string{"model", "train", "optimizer", "ddp", "scheduler", "checkpoint"} {
		if _, ok := m.keys[section+"."+leaf]; ok {
			return section + "." + leaf
		}
	}
	return ""
}

// unknown says what a flag without a key may be: Megatron's, which is not supported, or a mistyped one.
func (m *maker) unknown(name string) string {
	leaf := strings.ReplaceAll(name, "-", "_")
	_, problems := config.Parse("", []byte("model: {"+leaf+": 1}"), nil)
	for _, p := range problems {
		if p.Key == "model."+leaf && !strings.HasPrefix(p.Message, "unknown key; expected one of") {
			return ": model." + leaf + ": " + p.Message
		}
	}
	var known []string
	for _, list := range ignored {
		known = append(known, strings.Fields(list)...)
	}
	for f := range rename {
		known = append(known, f)
	}
	known = append(known, special...)
	for k := range m.keys {
		_, leaf, _ := strings.Cut(k, ".")
		known = append(known, strings.ReplaceAll(leaf, "_", "-"))
	}
	return convert.Near(name, known)
}

func (m *maker) fail(err error) {
	var ps convert.Problems
	if errors.As(err, &ps) {
		m.problems = append(m.problems, ps...)
	}
}

func (m *maker) remark(f flag, why string) {
	m.remarks = append(m.remarks, fmt.Sprintf("--%s: %s", strings.Join(append([]string{f.name}, f.values...), " "), why))
}

// add is a key with its value.
func (m *maker) add(key, value, why string, f flag) {
	m.entries = append(m.entries, entry{key: key, value: value, why: why, flag: f})
}

// set is a flag's values under a key, as the key's type has them.
func (m *maker) set(key string, f flag) {
	typ := m.keys[key].Type
	var value string
	var err error
	switch {
	case typ == "true or false" && len(f.values) == 0:
		value = "true"
	case strings.Contains(typ, "list of") && len(f.values) > 1:
		value, err = f.list()
	default:
		value, err = f.value()
		value = yamlOf(value, typ)
	}
	if err != nil {
		m.fail(err)
		return
	}
	m.add(key, value, "--"+f.name, f)
}

func (f flag) list() (string, error) {
	parts := make([]string, len(f.values))
	for i, v := range f.values {
		one, err := flag{f.name, []string{v}, f.where}.value()
		if err != nil {
			return "", err
		}
		parts[i] = yamlOf(one, "")
	}
	return "[" + strings.Join(parts, ", ") + "]", nil
}

// given is a flag of the command line.
func (m *maker) given(name string) (flag, bool) {
	f, ok := m.flags[name]
	return f, ok
}

// whole is the whole number of a flag; def when it is not given or no number, which another check tells.
func (m *maker) whole(name string, def int) int {
	f, ok := m.given(name)
	if !ok {
		return def
	}
	v, err := f.value()
	n, bad := strconv.Atoi(v)
	if err == nil && bad != nil {
		err = f.problem("found %q, expected a whole number", v)
	}
	if err != nil {
		m.fail(err)
		return def
	}
	return n
}

// word is the only value of a flag; def when it is not given.
func (m *maker) word(name, def string) string {
	f, ok := m.given(name)
	if !ok {
		return def
	}
	v, err := f.value()
	m.fail(err)
	return v
}

// worldSize is the number of processes that torchrun starts; 0 when its flags do not say.
func worldSize(words []Word) int {
	all, _, err := flags(afterFirstFlag(words))
	if err != nil {
		return 0
	}
	n := 1
	for _, name := range []string{"nproc-per-node", "nnodes"} {
		f, ok := all[name]
		if !ok {
			f.values = []string{"1"}
		}
		k := 0
		if len(f.values) > 0 {
			k, _ = strconv.Atoi(f.values[0]) // 0: gpu, auto or a variable
		}
		n *= k
	}
	if _, ok := all["nproc-per-node"]; !ok {
		return 0
	}
	return n
}

func afterFirstFlag(words []Word) []Word {
	i := slices.IndexFunc(words, func(w Word) bool { return strings.HasPrefix(w.Text, "--") })
	if i < 0 {
		return nil
	}
	return words[i:]
}
