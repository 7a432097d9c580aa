package tidy

import (
	"strconv"
	"strings"
)

// floors is the floor of every top folder. A package imports lower floors, its own parents and children.
var floors = map[string]int{
	"cmd":    8,
	"run":    7,
	"oracle": 6, "explain": 6, "sim": 6, "bench": 6, "convert": 6, "replay": 6,
	"actors": 5, "supervise": 5,
	"transport": 4, "checkpoint": 4, "data": 4, "telemetry": 4, "snapshot": 4, "recording": 4,
	"model": 3, "collective": 3, "recovery": 3,
	"mtp": 2, "moe": 2, "hybrid": 2, "train": 2,
	"nn": 1, "messages": 1,
	"mesh": 0, "tensor": 0, "config": 0,
}

// stillFloor is the highest floor without goroutines, channels, clocks, loggers and I/O.
const stillFloor = 3

// internalFrom says who may import a package of internal/ outside tests. An empty list is nobody, "*" everybody.
var internalFrom = map[string][]string{
	"internal/invariant": {"*"},
	"internal/golden":    {"convert", "data", "oracle", "run"},
	"internal/inproc":    {"bench", "explain"},
	"internal/disk":      {"checkpoint", "recording", "run", "snapshot"},
}

// library is a dependency with a home: only its folders import it, so that it can be replaced there.
type library struct {
	prefix string
	code   []string // folders whose code may import it
	tests  []string // folders whose tests may import it besides
}

var libraries = []library{
	{prefix: "github.com/nats-io/", code: []string{"transport/natslink"}, tests: []string{"transport"}},
	{prefix: "github.com/asynkron/protoactor-go", code: []string{"actors"}},
	{prefix: "github.com/spf13/cobra", code: []string{"cmd"}},
	{prefix: "mvdan.cc/sh/", code: []string{"convert/megatron"}},
	{prefix: "github.com/dlclark/regexp2", code: []string{"data/bpe"}},
	{prefix: "golang.org/x/text", code: []string{"data/bpe"}},
}

// apart are lower floors that a folder leaves alone all the same, with the reason.
var apart = []struct{ folder, never, reason string }{
	{"actors", "checkpoint", "actors know no file formats"},
	{"actors", "data", "actors know no file formats"},
	{"actors", "tensor/kernel", "actors do no tensor maths"},
	{"transport", "tensor", "a link carries bytes and reads the header only"},
	{"cmd", "transport", "a verb does not speak the protocol"},
	{"cmd", "actors", "a verb does not speak the protocol"},
	{"cmd", "collective", "a verb does not speak the protocol"},
	{"cmd", "nn", "a verb does no maths"},
}

// beside are imports of the same floor that are allowed, with the reason.
var beside = []struct{ folder, target, reason string }{
	{"recording", "snapshot", "a recording keeps snapshots"},
	{"config", "mesh", "the sizes that a scenario states are mesh.Sizes, and mesh knows no scenario"},
}

// Imports checks every import of a file.
func Imports(f *File) []Problem {
	var out []Problem
	if _, known := floorOf(f.Folder); !known && !within(f.Folder, "internal") {
		out = append(out, Problem{Where: f.Folder, Text: "has no floor; expected a folder of the table, or a new line in tidy's table with a reason"})
	}
	for _, spec := range f.tree.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if text := importFault(f, name); text != "" {
			out = append(out, f.problem(spec.Pos(), "imports %s: %s", name, text))
		}
	}
	return out
}

// importFault says what is wrong with an import; "" is nothing.
func importFault(f *File, name string) string {
	if name == Module || strings.HasPrefix(name, Module+"/") {
		return ownFault(f, folderOf(name))
	}
	return foreignFault(f, name)
}

// ownFault judges an import within the module. Tests may import what they test with.
func ownFault(f *File, target string) string {
	if f.Test || within(f.Folder, "internal") {
		return ""
	}
	if within(target, "internal") {
		return internalFault(f.Folder, target)
	}
	for _, a := range apart {
		if within(f.Folder, a.folder) && within(target, a.never) {
			return a.reason
		}
	}
	if within(target, f.Folder) || within(f.Folder, target) {
		return ""
	}
	for _, b := range beside {
		if f.Folder == b.folder && target == b.target {
			return ""
		}
	}
	from, _ := floorOf(f.Folder)
	to, known := floorOf(target)
	if !known || to < from {
		return ""
	}
	return "it stands on floor " + strconv.Itoa(to) + ", " + f.Folder + " on " + strconv.Itoa(from) +
		"; expected a lower floor, a parent or a child"
}

func internalFault(folder, target string) string {
	for _, from := range internalFrom[target] {
		if from == "*" || within(folder, from) {
			return ""
		}
	}
	if from := internalFrom[target]; len(from) > 0 {
		return "only " + strings.Join(from, ", ") + " and tests may"
	}
	return "no package may"
}

// foreignFault judges an import from outside the module.
func foreignFault(f *File, name string) string {
	for _, l := range libraries {
		if strings.HasPrefix(name, l.prefix) && !l.mayImport(f) {
			return "only " + strings.Join(l.code, ", ") + " may"
		}
	}
	floor, known := floorOf(f.Folder)
	if !known || floor > stillFloor || f.Test {
		return ""
	}
	if strings.HasPrefix(name, "go.uber.org/zap") {
		return "no logger below floor " + strconv.Itoa(stillFloor+1) + "; expected a typed event, or an error"
	}
	if kind := outside(name); kind != "" && !excepted(f.Folder, name) {
		return "no " + kind + " below floor " + strconv.Itoa(stillFloor+1) + "; expected the value as an argument"
	}
	return ""
}

func (l library) mayImport(f *File) bool {
	folders := l.code
	if f.Test {
		folders = append(folders[:len(folders):len(folders)], l.tests...)
	}
	for _, folder := range folders {
		if within(f.Folder, folder) {
			return true
		}
	}
	return false
}

// floorOf is the floor of a folder.
func floorOf(folder string) (floor int, known bool) {
	top, _, _ := strings.Cut(folder, "/")
	floor, known = floors[top]
	return floor, known
}

// within reports whether a folder is another or below it.
func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}
