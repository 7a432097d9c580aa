package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// document is one line of a jsonl file as tokens.
type document struct {
	tokens []int32
	answer []bool // per token: whether it is part of an answer; nil: the line was a plain text
}

// record is one line of a jsonl file. Keys it does not know are ignored: files carry ids and sources.
type record struct {
	Text       *string   `json:"text"`
	Prompt     *string   `json:"prompt"`
	Completion *string   `json:"completion"`
	Messages   []message `json:"messages"`
}

type message struct {
	Role    *string `json:"role"`
	Content *string `json:"content"`
}

// roles a message can have. What the assistant says is the answer.
var roles = []string{"system", "user", "assistant", "tool"}

// parseDocument reads one line. The error says what was found and expected, without the place.
func parseDocument(line []byte, tok Tokenizer) (document, error) {
	if at := badUTF8(line); at >= 0 {
		return document{}, fmt.Errorf("found no UTF-8 at byte %d of the line, expected a JSON object in UTF-8", at)
	}
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return document{}, jsonError(err)
	}
	forms := 0
	for _, set := range []bool{r.Text != nil, r.Prompt != nil || r.Completion != nil, r.Messages != nil} {
		if set {
			forms++
		}
	}
	if forms != 1 {
		return document{}, fmt.Errorf("found %d forms, expected one of text, prompt + completion, messages", forms)
	}
	d := document{}
	switch {
	case r.Text != nil:
		d.tokens = tok.Encode(*r.Text)
	case r.Messages != nil:
		if err := d.addMessages(r.Messages, tok); err != nil {
			return d, err
		}
	case r.Prompt == nil || r.Completion == nil:
		return d, errors.New("found one of prompt and completion, expected both")
	default:
		d.add(*r.Prompt, false, tok)
		d.add(*r.Completion, true, tok)
	}
	if len(d.tokens) < 2 {
		return d, fmt.Errorf("found %s, expected at least 2, one to read and one to predict", count(len(d.tokens), "token"))
	}
	return d, nil
}

// addMessages writes a conversation as "ROLE: CONTENT\n" after one another. Content and line end of the assistant's
// messages are answers: the model learns to speak and to stop, not to take the others' part.
func (d *document) addMessages(messages []message, tok Tokenizer) error {
	for i, m := range messages {
		if m.Role == nil || m.Content == nil {
			return fmt.Errorf("messages[%d]: expected role and content", i)
		}
		if !slices.Contains(roles, *m.Role) {
			return fmt.Errorf("messages[%d]: found role %q, expected one of %s", i, *m.Role, strings.Join(roles, ", "))
		}
		d.add(*m.Role+": ", false, tok)
		d.add(*m.Content+"\n", *m.Role == "assistant", tok)
	}
	return nil
}

func (d *document) add(text string, answer bool, tok Tokenizer) {
	ids := tok.Encode(text)
	d.tokens = append(d.tokens, ids...)
	d.answer = append(d.answer, slices.Repeat([]bool{answer}, len(ids))...)
}

// cut shortens a document to n tokens and says whether it was longer and whether its whole answer is gone.
func (d *document) cut(n int) (shorter, answerless bool) {
	if len(d.tokens) <= n {
		return false, false
	}
	had := d.hasTarget()
	d.tokens = d.tokens[:n:n]
	if d.answer != nil {
		d.answer = d.answer[:n:n]
	}
	return true, had && !d.hasTarget()
}

// hasTarget says whether any label is a token of an answer: the first token of a document is never a label.
func (d *document) hasTarget() bool { return len(d.answer) > 1 && slices.Contains(d.answer[1:], true) }

// sequence is the row of a document: all labels count, or, answerOnly, those that are tokens of an answer: the first
// token of an answer is predicted at the last one of its prompt.
func (d *document) sequence(answerOnly bool) sequence {
	q := predicting(d.tokens)
	if answerOnly {
		q.counts = d.answer[1:]
	}
	return q
}

// jsonError says in one clause what is wrong with a line's JSON.
func jsonError(err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		where := te.Field
		if where == "" {
			where = "the line"
		}
		return fmt.Errorf("%s: found a JSON %s, expected %s", where, te.Value, jsonName(te.Type.Kind().String()))
	}
	return fmt.Errorf("no JSON object: %w", err)
}

// jsonName is the JSON word for a Go kind.
func jsonName(kind string) string {
	switch kind {
	case "slice":
		return "a list"
	case "struct":
		return "an object"
	}
	return "a string"
}
