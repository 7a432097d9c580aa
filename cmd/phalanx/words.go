package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// overridePattern is section.key=value, or one of the keys without a section that a command line sets. A file of such a name can still be given as ./section.key=value.
var overridePattern = regexp.MustCompile(`^([A-Za-z_]\w*(\.\w+)+|mutate|probe|expect)=`)

// split tells files from overrides, each in their order.
func split(args []string) (files, overrides []string) {
	for _, arg := range args {
		if overridePattern.MatchString(arg) {
			overrides = append(overrides, arg)
		} else {
			files = append(files, arg)
		}
	}
	return files, overrides
}

// filesAndOverrides is split for a verb that wants at least one file; at most one if single.
func filesAndOverrides(verb, what string, args []string, single bool) (files, overrides []string, err error) {
	files, overrides = split(args)
	for _, f := range files {
		if err := meantAsOverride(verb, f); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case len(files) == 0:
		return nil, nil, usagef("phalanx %s: found no file, expected a %s, as in `phalanx %s %s`", verb, what, verb, example(what))
	case single && len(files) > 1:
		return nil, nil, usagef("phalanx %s: found %d files (%s), expected one", verb, len(files), list(files))
	}
	return files, overrides, nil
}

// example is the word of what stands for a file: "FILE" of "scenario FILE".
func example(what string) string {
	words := strings.Fields(what)
	return words[len(words)-1]
}

// meantAsOverride is the error for key=value without a section, unless a file has that name.
func meantAsOverride(verb, arg string) error {
	key, _, ok := strings.Cut(arg, "=")
	if !ok || strings.ContainsAny(key, `/\`) {
		return nil
	}
	if _, err := os.Stat(arg); err == nil {
		return nil
	}
	return usagef("phalanx %s: %q is no file and no override; expected section.key=value, as in train.train_iters=10", verb, arg)
}

// list is "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest is the word that needs the fewest typing mistakes to become what was typed.
func nearest(typed string, words []string) string {
	best, least := "", 1<<30
	for _, w := range words {
		d := mistakes(strings.ToLower(typed), w)
		if strings.HasPrefix(w, strings.ToLower(typed)) {
			d = 0
		}
		if d < least {
			best, least = w, d
		}
	}
	return best
}

// mistakes counts insertions, deletions, replacements and swaps of neighbours that make a into b.
func mistakes(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// plural is "1 step" or "2 steps".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// bytesText is a size for people: "81.2 MiB".
func bytesText(n int64) string {
	v, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for len(units) > 1 && v >= 1024 {
		v, units = v/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[0])
}
