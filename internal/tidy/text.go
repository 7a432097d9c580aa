package tidy

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
)

func sizeText(what string, found, limit int) string {
	return fmt.Sprintf("%s of %d lines; expected at most %d: move what changes for another reason elsewhere", what, found, limit)
}

// machinePath is an absolute path below somebody's home or a work folder. It is written in pieces so that this file
// does not hold one.
var machinePath = regexp.MustCompile(`(^|[^\w./~$}-])(/(home|Users)/\w|/root/\w|/wo` + `rk/\w|[A-Za-z]:\\Users\\\w)`)

// roots are what machinePath begins with: most files hold none, and searching for words is faster than for patterns.
var roots = [][]byte{[]byte("/home/"), []byte("/Users/"), []byte("/root/"), []byte("/wo" + "rk/"), []byte(`:\Users\`)}

// Paths checks that a text file names no folder of one machine. Files with a NUL byte are not text.
func Paths(name string, text []byte) []Problem {
	if bytes.IndexByte(text, 0) >= 0 || !slices.ContainsFunc(roots, func(r []byte) bool { return bytes.Contains(text, r) }) {
		return nil
	}
	var out []Problem
	for i, line := range bytes.Split(text, []byte("\n")) {
		if m := machinePath.FindSubmatch(line); m != nil {
			out = append(out, Problem{fmt.Sprintf("%s:%d", name, i+1),
				fmt.Sprintf("found the path %s… of one machine; expected a relative path or a placeholder", m[2])})
		}
	}
	return out
}
