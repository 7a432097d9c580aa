package explain

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"phalanx/data"
)

// textMax bounds the characters of one token's text, so that no token bursts its column.
const textMax = 12

// visible is the text of every id, each on its own: what is not printable is written as in a Go string, a space is ␣.
func visible(tok data.Tokenizer, ids []int32) []string {
	known := map[int32]string{}
	out := make([]string, len(ids))
	for i, id := range ids {
		text, ok := known[id]
		if !ok {
			text = tokenText(tok.Decode([]int32{id}))
			known[id] = text
		}
		out[i] = text
	}
	return out
}

// tokenText makes a token printable.
func tokenText(s string) string {
	var b strings.Builder
	for n := 0; s != ""; n++ {
		if n == textMax {
			b.WriteRune('…')
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ':
			b.WriteRune('␣')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}
