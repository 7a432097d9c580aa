package config

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown bounds quoted input in a message, in characters: enough to recognise it, short enough for one line.
const maxShown = 60

// show is s as a message names it: as it stands when it is a plain word, else in quotes; long texts are cut.
func show(s string) string {
	short := cut(s, maxShown)
	plain := short != "" && utf8.ValidString(short) &&
		strings.IndexFunc(short, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == '"' }) < 0
	if plain {
		return short
	}
	return strconv.Quote(short)
}

// cut is s, or its beginning and … when it is longer than n characters.
func cut(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// describe says what a node is, for "found …".
func describe(n *node) string {
	switch {
	case n.kind == list && len(n.items) == 0:
		return "an empty list"
	case n.kind == list:
		return "a list"
	case n.kind == mapping:
		return "keys with values"
	case n.null():
		return "nothing"
	case n.quote:
		return strconv.Quote(cut(n.text, maxShown)) + " (text in quotes)"
	case n.tag == "!!str":
		return show(n.text) + " (text)"
	}
	return show(n.text)
}

// quoteWord is s in quotes, cut and escaped.
func quoteWord(s string) string { return strconv.Quote(cut(s, maxShown)) }

// oneOf joins alternatives: "a", "a or b", "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// distance is the number of single-character edits between a and b, a swap of neighbours counting as one
// (Damerau-Levenshtein, optimal string alignment).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	before, above, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(t)]
}

// Nearest is the candidate that a mistyped word was meant to be; "" if none is close.
func Nearest(word string, candidates []string) string {
	best, _ := nearest(word, candidates)
	return best
}

// nearest is the candidate closest to word, the first of equals, and its distance. Nothing is returned when none is
// close enough to be what was meant: one edit in four characters, at most three, and never more than the word changes.
func nearest(word string, candidates []string) (string, int) {
	if len(word) > MaxNameBytes {
		return "", 0
	}
	limit := min(3, max(1, utf8.RuneCountInString(word)/4))
	best, at := "", limit+1
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < at {
			best, at = c, d
		}
	}
	return best, at
}
