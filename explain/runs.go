package explain

import (
	"fmt"
	"strings"
)

// run is a stretch of positions with one value.
type run[V comparable] struct {
	from, to int // [from, to)
	v        V
}

// runsOf cuts values into runs.
func runsOf[V comparable](values []V) []run[V] {
	var out []run[V]
	for i, v := range values {
		if n := len(out) - 1; n >= 0 && out[n].v == v {
			out[n].to = i + 1
			continue
		}
		out = append(out, run[V]{i, i + 1, v})
	}
	return out
}

// span is "3" or "3–7".
func (r run[V]) span() string { return spanText(r.from, r.to) }

func spanText(from, to int) string {
	if to-from == 1 {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d–%d", from, to-1)
}

// runWords names the runs of values, "0–188 valid," "189–303 padding", at most runsMax of them.
func runWords[V comparable](values []V, name func(V) string) []string {
	runs := runsOf(values)
	var words []string
	for i, r := range runs {
		if i == runsMax {
			return append(words, fmt.Sprintf("… and %d more runs", len(runs)-i))
		}
		words = append(words, r.span()+" "+name(r.v)+",")
	}
	return trimComma(words)
}

// ascending cuts positions into stretches that go up by one, "0–3," "12–15"; −1 becomes "2 inserted".
func ascending(positions []int) []string {
	var words []string
	for i := 0; i < len(positions); {
		j := i + 1
		for j < len(positions) && (positions[j] == positions[j-1]+1 && positions[i] >= 0 || positions[j] < 0 && positions[i] < 0) {
			j++
		}
		if positions[i] < 0 {
			words = append(words, fmt.Sprintf("%d inserted,", j-i))
		} else {
			words = append(words, spanText(positions[i], positions[i]+j-i)+",")
		}
		if i = j; len(words) == runsMax && i < len(positions) {
			return append(words, fmt.Sprintf("… and %d more slots", len(positions)-i))
		}
	}
	return trimComma(words)
}

func trimComma(words []string) []string {
	if n := len(words); n > 0 {
		words[n-1] = strings.TrimSuffix(words[n-1], ",")
	}
	return words
}
