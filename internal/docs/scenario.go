package docs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"phalanx/config"
)

// KeyTables are all keys of a scenario as Markdown: a table for the keys outside sections, one for each section and one
// for the entries of each list.
func KeyTables() string {
	var order []string
	rows := map[string]string{}
	for _, k := range config.Keys() {
		s := sectionOf(k.Name)
		if rows[s] == "" {
			order = append(order, s)
		}
		rows[s] += row(k, s)
	}
	var b strings.Builder
	for _, s := range inOrder(order) {
		fmt.Fprintf(&b, "\n### %s\n\n| key | value | default | meaning | name from |\n|---|---|---|---|---|\n%s", headingOf(s), rows[s])
	}
	return b.String()
}

// row is a key's line of the table of its section.
func row(k config.KeyInfo, section string) string {
	name := strings.TrimPrefix(k.Name, strings.TrimSuffix(section, ".")+".")
	name = strings.TrimPrefix(name, "*.")
	from := "Phalanx"
	if k.Megatron {
		from = "Megatron"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", name, cell(valueText(k)), cell(defaultText(k.Default)), cell(k.Doc), from)
}

// sectionOf is the heading a key stands below: its section, or its list with a dot behind it if it is in an entry of one.
func sectionOf(key string) string {
	if list, _, entry := strings.Cut(key, ".*."); entry {
		return list + "."
	}
	section, _, nested := strings.Cut(key, ".")
	if !nested {
		return ""
	}
	return section
}

// inOrder puts sections in the order of the file, entries of lists behind everything else of their section or the file.
func inOrder(sections []string) []string {
	var out, lists []string
	for _, s := range sections {
		if strings.HasSuffix(s, ".") && !strings.Contains(strings.TrimSuffix(s, "."), ".") {
			lists = append(lists, s)
			continue
		}
		out = append(out, s)
	}
	return append(out, lists...)
}

func headingOf(section string) string {
	switch list, entries := strings.CutSuffix(section, "."); {
	case section == "":
		return "Outside sections"
	case entries:
		return "Each entry of `" + list + "`"
	}
	return "`" + section + "`"
}

// legalMax is how many legal words a cell lists; only the planted bugs are more, and they have a page of their own.
const legalMax = 8

func valueText(k config.KeyInfo) string {
	switch {
	case len(k.Legal) > legalMax:
		return "list of names from [mutations.md](mutations.md)"
	case Refused(k.Name, "2") != "":
		return "1 in this version"
	case len(k.Legal) > 0:
		return "`" + strings.Join(k.Legal, "` `") + "`"
	case k.Range != "":
		return k.Type + " " + k.Range
	}
	return k.Type
}

func defaultText(def string) string {
	switch {
	case def == "":
		return "–"
	case def == "required":
		return "required"
	case strings.HasPrefix(def, "= "):
		return strings.TrimPrefix(def, "= ")
	}
	return "`" + def + "`"
}

// cell keeps a text from ending its cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(text)
}

// probe is a value that the table of refusals may hold, as an override.
type probe struct{ key, value string }

var (
	refusalLine = regexp.MustCompile(`(?m)^\t\{key: "([^"]+)"(.*)\},`)
	wordsOf     = regexp.MustCompile(`values: is\(((?:"[^"]*"(?:, )?)+)\)`)
	moreThan    = regexp.MustCompile(`values: moreThan\((\d+)\)`)
)

// probesOf reads candidates out of the source of config's table of refusals. Whether they are refused is for config to say.
func probesOf(source string) []probe {
	var out []probe
	for _, m := range refusalLine.FindAllStringSubmatch(source, -1) {
		key, rest := strings.ReplaceAll(m[1], "*", "0"), m[2]
		switch words, number := wordsOf.FindStringSubmatch(rest), moreThan.FindStringSubmatch(rest); {
		case words != nil:
			for word := range strings.SplitSeq(words[1], ", ") {
				out = append(out, probe{key, strings.Trim(word, `"`)})
			}
		case number != nil:
			n, _ := strconv.Atoi(number[1])
			out = append(out, probe{key, strconv.Itoa(n + 1)})
		case strings.Contains(rest, "list: true"):
			out = append(out, probe{key, listProbe})
		case !strings.Contains(rest, "values:"):
			out = append(out, probe{key, anyProbe})
		}
	}
	return out
}

// base is a scenario that is legal without overrides, so that every problem is the override's.
const base = `model: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, num_moe_experts: 4, mtp_num_layers: 1}
train: {train_iters: 1, micro_batch_size: 2}
optimizer: {lr: 0.01}
dataset: {kind: rows, seq_length: 8, rows: [{valid: 8}]}
`

// Refused is what config says to an override that is not in this version; "" if it takes it or has another complaint.
func Refused(key, value string) string {
	text := base
	set := []string{key + "=" + value}
	if !strings.Contains(key, ".") { // a section or a key outside sections, which an override cannot set
		text, set = base+key+": "+value+"\n", nil
	}
	_, problems := config.Parse("scenario.yaml", []byte(text), set)
	for _, p := range problems {
		if strings.Contains(p.Message, "not in this version") || strings.Contains(p.Message, "Phalanx does not support it yet") {
			return p.Message
		}
	}
	return ""
}

// LaterTable is what scenarios may say that this version refuses, as Markdown. source is that of config's table.
func LaterTable(source string) string {
	var keys []string
	what, instead := map[string][]string{}, map[string]string{}
	for _, p := range probesOf(source) {
		message := Refused(p.key, p.value)
		if message == "" {
			continue
		}
		if what[p.key] == nil {
			keys = append(keys, p.key)
		}
		what[p.key] = append(what[p.key], p.text())
		if instead[p.key] == "" || p.value != listProbe {
			instead[p.key] = now(message)
		}
	}
	var b strings.Builder
	b.WriteString("\n| key | not in this version | supported now |\n|---|---|---|\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(key, ".0.", ".*."), strings.Join(what[key], ", "), cell(instead[key]))
	}
	return b.String()
}

// text is the value as the table shows it.
func (p probe) text() string {
	switch {
	case p.value == listProbe:
		return "a list"
	case p.value == anyProbe:
		return "any value"
	case p.value == "2":
		return "above 1"
	}
	return "`" + p.value + "`"
}

// Values that stand for a list, and for whatever a key may have.
const (
	listProbe = "[a, b]"
	anyProbe  = "1"
)

// now is the end of a refusal: what is legal in place of it.
func now(message string) string {
	for _, mark := range []string{"supported now: ", "legal now: "} {
		if _, text, ok := strings.Cut(message, mark); ok {
			return text
		}
	}
	return "–"
}
