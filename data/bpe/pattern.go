package bpe

import (
	"slices"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// step splits a text into pieces, in order, and leaves nothing out unless it says so.
type step func(text string, piece func(string))

// contractions are English ones in any case. U+017F is a lower-case s too when case does not count.
const contractions = `'(?:[sS\u017F]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])`

// pattern is a known way to split texts: which regular expressions stand for it in tokenizer.json, and the same in the
// dialect of our engine. Engines differ in details, so that a pattern nobody has compared is refused, not tried.
type pattern struct {
	name   string
	spelt  []string
	ours   string
	covers bool // every character is in some match
}

const spaces = `|\s*[\r\n]+|\s+(?!\S)|\s+`

// patterns are all that are known.
var patterns = []pattern{
	{name: "gpt2", covers: true, ours: `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, spelt: []string{
		`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`}},
	{name: "cl100k_base", covers: true, ours: contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces, spelt: []string{
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces}},
	{name: "qwen2", covers: true, ours: contractions + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces, spelt: []string{
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + spaces}},
	{name: "o200k_base", covers: true, ours: o200kWords(contractions) + o200kRest, spelt: []string{o200kWords(`(?i:'s|'t|'re|'ve|'m|'ll|'d)`) + o200kRest}},
	{name: "digits, up to three", ours: `\p{N}{1,3}`, spelt: []string{`\p{N}{1,3}`}},
	{name: "digits, one by one", ours: `\p{N}`, spelt: []string{`\p{N}`}},
	{name: "digits", ours: `\p{N}+`, spelt: []string{`\p{N}+`}},
	{name: "deepseek-v3 characters", ours: `[一-龥぀-ゟ゠-ヿ]+`, spelt: []string{`[一-龥぀-ゟ゠-ヿ]+`}},
	{name: "deepseek-v3 words", ours: deepseekWords, spelt: []string{deepseekWords}},
}

const (
	o200kRest     = `|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*` + spaces
	deepseekWords = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" + spaces
)

// o200kWords are words that end in lower case, then words of upper case, each with a contraction behind.
func o200kWords(contraction string) string {
	const head, upper, lower = `[^\r\n\p{L}\p{N}]?`, `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	return head + upper + `*` + lower + `+(?:` + contraction + `)?|` + head + upper + `+` + lower + `*(?:` + contraction + `)?`
}

// PatternNames are the patterns that texts can be split by alone.
func PatternNames() []string {
	var names []string
	for _, p := range patterns {
		if p.covers {
			names = append(names, p.name)
		}
	}
	return names
}

// named is the pattern of a name; nil if there is none.
func named(name string) *pattern {
	if i := slices.IndexFunc(patterns, func(p pattern) bool { return p.covers && p.name == name }); i >= 0 {
		return &patterns[i]
	}
	return nil
}

// spelled is the pattern of a regular expression; nil if it is not known.
func spelled(expression string) *pattern {
	if i := slices.IndexFunc(patterns, func(p pattern) bool { return slices.Contains(p.spelt, expression) }); i >= 0 {
		return &patterns[i]
	}
	return nil
}

// isolated makes a piece of every match and of what is between two matches.
func (p *pattern) isolated() step {
	re := regexp2.MustCompile(p.ours)
	return func(text string, piece func(string)) {
		runes := []rune(text)      // a byte that is no UTF-8 is one U+FFFD
		from, at, index := 0, 0, 0 // bytes before the piece and the rune, runes before it
		to := func(rune int) int {
			for ; index < rune; index++ {
				_, n := utf8.DecodeRuneInString(text[at:])
				at += n
			}
			return at
		}
		emit := func(end int) {
			if end > from {
				piece(text[from:end])
			}
			from = end
		}
		if err := re.FindRunesMatches(runes, -1, func(m regexp2.MatchView) bool {
			start, n, _ := m.GroupRange(0)
			emit(to(start))
			emit(to(start + n))
			return true
		}); err != nil {
			panic(err) // has no time limit, and no pattern recurses
		}
		emit(len(text))
	}
}
