package convert

import (
	"slices"
)

// Near is `; did you mean "…"?` for a name that is at most a few edits from a known one; "" when none is.
func Near(name string, known []string) string {
	best, least := "", min(3, 1+len(name)/4)+1
	slices.Sort(known)
	for _, k := range known {
		if d := edits(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// edits is the number of single-byte insertions, deletions and replacements between two names (Levenshtein).
func edits(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
