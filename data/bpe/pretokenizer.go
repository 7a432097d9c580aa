package bpe

import (
	"encoding/json"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// nestedMax bounds sequences in sequences.
const nestedMax = 8

// splitPart is a Split of a tokenizer.json.
type splitPart struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex  *string `json:"Regex"`
		String *string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`
}

// preTokenizer reads how texts are split. It has to end in ByteLevel, which is what makes bytes of characters.
func (t *Tokenizer) preTokenizer(part json.RawMessage) *Error {
	if absent(part) {
		return wrong("pre_tokenizer: found none, expected one that ends in ByteLevel")
	}
	last, err := t.preStep(part, 0)
	if err == nil && last != "ByteLevel" {
		err = wrong("pre_tokenizer: found %s at its end, expected ByteLevel", last)
	}
	return err
}

// preStep reads one pre-tokenizer and returns the type of the last step.
func (t *Tokenizer) preStep(part json.RawMessage, depth int) (last string, err *Error) {
	kind, err := typeOf("pre_tokenizer", part)
	if err != nil {
		return "", err
	}
	switch kind {
	case "Sequence":
		var s struct {
			Type  string            `json:"type"`
			Parts []json.RawMessage `json:"pretokenizers"`
		}
		if err := strict("pre_tokenizer: Sequence", part, &s); err != nil {
			return "", err
		}
		for i, p := range s.Parts {
			if last == "ByteLevel" || depth == nestedMax {
				return "", wrong("pre_tokenizer: found step %d behind ByteLevel or nested too deep, expected ByteLevel last", i)
			}
			if last, err = t.preStep(p, depth+1); err != nil {
				return "", err
			}
		}
		return last, nil
	case "ByteLevel":
		return kind, t.byteLevel(part)
	case "Split":
		return kind, t.split(part)
	case "Digits":
		var d struct {
			Type       string `json:"type"`
			Individual bool   `json:"individual_digits"`
		}
		if err := strict("pre_tokenizer: Digits", part, &d); err != nil {
			return "", err
		}
		expression := `\p{N}+`
		if d.Individual {
			expression = `\p{N}`
		}
		t.steps = append(t.steps, spelled(expression).isolated())
		return kind, nil
	}
	return "", wrong("pre_tokenizer: type %q is not supported; legal: ByteLevel, Split, Digits, Sequence", kind)
}

func (t *Tokenizer) byteLevel(part json.RawMessage) *Error {
	b := struct {
		Type        string `json:"type"`
		PrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets bool   `json:"trim_offsets"` // of offsets, which nobody asks for
		UseRegex    bool   `json:"use_regex"`
	}{PrefixSpace: true, UseRegex: true}
	if err := strict("pre_tokenizer: ByteLevel", part, &b); err != nil {
		return err
	}
	if b.PrefixSpace {
		t.steps = append(t.steps, func(text string, piece func(string)) {
			if !strings.HasPrefix(text, " ") {
				text = " " + text
			}
			piece(text)
		})
	}
	if b.UseRegex {
		t.steps = append(t.steps, named("gpt2").isolated())
	}
	return nil
}

func (t *Tokenizer) split(part json.RawMessage) *Error {
	var s splitPart
	if err := strict("pre_tokenizer: Split", part, &s); err != nil {
		return err
	}
	if s.Pattern.Regex == nil {
		return wrong("pre_tokenizer: Split: a pattern of type String is not supported; legal: Regex")
	}
	p := spelled(*s.Pattern.Regex)
	switch {
	case p == nil:
		return wrong("pre_tokenizer: Split: the pattern %q is not supported; legal: those of %s, of DeepSeek-V3, and of digits",
			*s.Pattern.Regex, strings.Join(PatternNames(), ", "))
	case s.Behavior == "Isolated" && !s.Invert, s.Behavior == "Removed" && s.Invert && p.covers:
		t.steps = append(t.steps, p.isolated())
		return nil
	}
	return wrong("pre_tokenizer: Split: behavior %q with invert %t is not supported; legal: Isolated with false", s.Behavior, s.Invert)
}

// normalizer reads how texts are normalised; nil: not at all.
func normalizer(part json.RawMessage, depth int) (func(string) string, *Error) {
	if absent(part) {
		return nil, nil
	}
	kind, err := typeOf("normalizer", part)
	if err != nil {
		return nil, err
	}
	switch form, known := forms[kind]; {
	case known:
		return form.String, nil
	case kind == "Sequence" && depth < nestedMax:
		return normalizers(part, depth)
	case kind == "Prepend":
		var p struct {
			Type    string `json:"type"`
			Prepend string `json:"prepend"`
		}
		err := strict("normalizer: Prepend", part, &p)
		return func(s string) string { return p.Prepend + s }, err
	case kind == "Replace":
		return replace(part)
	}
	return nil, wrong("normalizer: type %q is not supported; legal: NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence", kind)
}

var forms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// normalizers is a Sequence.
func normalizers(part json.RawMessage, depth int) (func(string) string, *Error) {
	var s struct {
		Type  string            `json:"type"`
		Parts []json.RawMessage `json:"normalizers"`
	}
	if err := strict("normalizer: Sequence", part, &s); err != nil {
		return nil, err
	}
	var all []func(string) string
	for _, p := range s.Parts {
		f, err := normalizer(p, depth+1)
		if err != nil {
			return nil, err
		}
		if f != nil {
			all = append(all, f)
		}
	}
	if all == nil {
		return nil, nil
	}
	return func(s string) string {
		for _, f := range all {
			s = f(s)
		}
		return s
	}, nil
}

// replace is a Replace of one text by another.
func replace(part json.RawMessage) (func(string) string, *Error) {
	var r struct {
		Type    string `json:"type"`
		Pattern struct {
			Regex  *string `json:"Regex"`
			String *string `json:"String"`
		} `json:"pattern"`
		Content string `json:"content"`
	}
	if err := strict("normalizer: Replace", part, &r); err != nil {
		return nil, err
	}
	if r.Pattern.String == nil || *r.Pattern.String == "" {
		return nil, wrong("normalizer: Replace: expected a pattern of type String; a Regex is not supported")
	}
	return strings.NewReplacer(*r.Pattern.String, r.Content).Replace, nil
}
