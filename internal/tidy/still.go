package tidy

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// outsideKinds are the standard packages that reach the clock, the operating system or a logger.
var outsideKinds = map[string]string{
	"time": "clock", "os": "operating system", "syscall": "operating system", "net": "network", "log": "logger",
}

// pureParts are packages below those that only work on values.
var pureParts = []string{"net/url", "net/netip", "net/textproto"}

// outside says what a standard package reaches; "" is nothing.
func outside(name string) string {
	if slices.Contains(pureParts, name) {
		return ""
	}
	top, _, _ := strings.Cut(name, "/")
	return outsideKinds[top]
}

// exceptions are the things that a folder on floors 0–3 does all the same: an import or a statement, and why.
var exceptions = []struct{ folder, what, reason string }{
	{"tensor/kernel", "os", "PHALANX_KERNEL chooses the instruction set; it changes no bit"},
	{"tensor/kernel", "go", "the compute pool; parts are independent, so it changes no bit"},
	{"tensor/kernel", "chan", "the compute pool"},
	{"tensor/kernel", "select", "the compute pool takes whoever is idle and never waits"},
	{"tensor/kernel/asm", "os", "programs that go generate runs; no part of the product"},
	{"tensor/kernel/asm", "log", "programs that go generate runs; no part of the product"},
	{"config", "os", "reads a scenario file whole, then works on bytes"},
}

func excepted(folder, what string) bool {
	for _, e := range exceptions {
		if within(folder, e.folder) && e.what == what {
			return true
		}
	}
	return false
}

// Stillness checks that floors 0–3 have no goroutine and no channel.
func Stillness(f *File) []Problem {
	floor, known := floorOf(f.Folder)
	if !known || floor > stillFloor || f.Test {
		return nil
	}
	var out []Problem
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if what := statement(n); what != "" && !excepted(f.Folder, what) {
			out = append(out, f.problem(n.Pos(), "found %s on floor %s; expected a pure machine (goroutines start at floor %d)",
				what, strconv.Itoa(floor), stillFloor+1))
		}
		return true
	})
	return out
}

// statement names what a node does if it is one of the things that floors 0–3 do not.
func statement(n ast.Node) string {
	switch n.(type) {
	case *ast.GoStmt:
		return "go"
	case *ast.ChanType:
		return "chan"
	case *ast.SelectStmt:
		return "select"
	}
	return ""
}
