package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// file is a tokenizer.json, as far as it is read. Truncation and padding are the dataset's business and ignored.
type file struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
}

// LoadHuggingFace reads a tokenizer.json. What is wrong, or not supported, is an *Error.
func LoadHuggingFace(path string) (*Tokenizer, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := ParseHuggingFace(b)
	return withPath(t, path, err)
}

// ParseHuggingFace is LoadHuggingFace of the contents of a file.
func ParseHuggingFace(text []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, jsonError(text, err)
	}
	t := &Tokenizer{name: "tokenizer.json", vocab: newVocabulary(), pairs: map[uint64]merge{}}
	for _, read := range []func() *Error{
		func() *Error { return t.model(f.Model) },
		func() (err *Error) { t.normalise, err = normalizer(f.Normalizer, 0); return err },
		func() *Error { return t.preTokenizer(f.PreTokenizer) },
		func() *Error { return accepted("decoder", f.Decoder, "ByteLevel") },
		func() *Error {
			return accepted("post_processor", f.PostProcessor, "ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing")
		},
		func() *Error { return t.addTokens(f.AddedTokens) },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// jsonError names the line of what is no JSON.
func jsonError(text []byte, err error) *Error {
	var se *json.SyntaxError
	var te *json.UnmarshalTypeError
	at := int64(-1)
	switch {
	case errors.As(err, &se):
		at = se.Offset
	case errors.As(err, &te):
		at = te.Offset
		err = fmt.Errorf("%s: found a JSON %s", te.Field, te.Value)
	}
	e := wrong("no tokenizer.json: %v", err)
	if at >= 0 {
		e.Line = 1 + bytes.Count(text[:min(at, int64(len(text)))], []byte("\n"))
	}
	return e
}

// absent says whether a part of the file is missing or null.
func absent(part json.RawMessage) bool { return len(part) == 0 || string(part) == "null" }

// strict reads a part into v; a key that v does not have is refused by name.
func strict(what string, part json.RawMessage, v any) *Error {
	d := json.NewDecoder(bytes.NewReader(part))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return wrong("%s: not supported: %v", what, err)
	}
	return nil
}

// typeOf is the type of a part.
func typeOf(what string, part json.RawMessage) (string, *Error) {
	var t struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(part, &t); err != nil {
		return "", wrong("%s: expected an object with a type", what)
	}
	return t.Type, nil
}

// accepted wants a part to be missing, of one of the types, or a Sequence of those.
func accepted(what string, part json.RawMessage, types ...string) *Error {
	if absent(part) {
		return nil
	}
	var p struct {
		Type       string `json:"type"`
		Processors []struct {
			Type string `json:"type"`
		} `json:"processors"`
		Decoders []struct {
			Type string `json:"type"`
		} `json:"decoders"`
	}
	if err := json.Unmarshal(part, &p); err != nil {
		return wrong("%s: expected an object with a type", what)
	}
	names := []string{p.Type}
	if p.Type == "Sequence" {
		names = nil
		for _, q := range append(p.Processors, p.Decoders...) {
			names = append(names, q.Type)
		}
	}
	for _, name := range names {
		if !slices.Contains(types, name) {
			return wrong("%s: type %q is not supported; legal: %v", what, name, types)
		}
	}
	return nil
}

// addTokens reads added_tokens.
func (t *Tokenizer) addTokens(tokens []addedToken) *Error {
	for _, a := range tokens {
		for _, flag := range []struct {
			name string
			on   bool
		}{{"single_word", a.SingleWord}, {"lstrip", a.LStrip}, {"rstrip", a.RStrip}} {
			if flag.on {
				return wrong("added_tokens: %q with %s: true is not supported", a.Content, flag.name)
			}
		}
		content, to := a.Content, &t.raw
		if a.Normalized && t.normalise != nil {
			content, to = t.normalise(content), &t.normal
		}
		if err := t.addToken(content, a.ID, to); err != nil {
			return err
		}
		t.vocab.text[int32(a.ID)] = a.Content
	}
	return nil
}
