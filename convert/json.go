package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// jsonBytesMax bounds config.json and the index: the largest index published has about 10 MB.
const jsonBytesMax = 256 << 20

// field is one field of a JSON object, with its place.
type field struct {
	name string
	raw  json.RawMessage
	at   string // FILE:line:column
}

// null reports whether the field says nothing.
func (f field) null() bool { return string(f.raw) == "null" }

// text is the value as a message shows it.
func (f field) text() string {
	const most = 60
	var b bytes.Buffer
	if json.Compact(&b, f.raw) != nil {
		return "?"
	}
	s := b.String()
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return s
}

// into decodes the value strictly: no other type, no other fields.
func (f field) into(v any) bool {
	d := json.NewDecoder(bytes.NewReader(f.raw))
	return !f.null() && d.Decode(v) == nil
}

// object is a JSON object in the order of the file.
type object struct {
	path   string
	fields []field
}

// get is the field of a name.
func (o *object) get(name string) (field, bool) {
	for _, f := range o.fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// readObject reads a file that holds one JSON object.
func readObject(path string) (*object, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, jsonBytesMax+1))
	if err != nil {
		return nil, fileError(path, err)
	}
	return parseObject(path, src)
}

// parseObject reads one JSON object. A name twice is refused: encoding/json alone would keep the last silently.
func parseObject(path string, src []byte) (*object, error) {
	o := &object{path: path}
	if len(src) > jsonBytesMax {
		return nil, one(path, "", "found more than %d bytes, expected a JSON object", jsonBytesMax)
	}
	if !utf8.Valid(src) {
		return nil, one(path, "", "found text that is not UTF-8, expected a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	place := func() string { return path + ":" + lineColumn(src, d.InputOffset()) }
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, one(place(), "", "found %s, expected a JSON object", tokenText(t, err))
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, one(place(), "", "found %s, expected the name of a field", tokenText(t, err))
		}
		f := field{name: name, at: path + ":" + lineColumn(src, nameStart(src, d.InputOffset()))}
		if seen[name] {
			return nil, one(f.at, name, "found the field twice, expected it once")
		}
		seen[name] = true
		if err := d.Decode(&f.raw); err != nil {
			return nil, one(f.at, name, "found no JSON value: %v", err)
		}
		o.fields = append(o.fields, f)
	}
	if t, err := d.Token(); err != nil {
		return nil, one(place(), "", "found %s, expected a closing }", tokenText(t, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, one(place(), "", "found more behind the object, expected its end")
	}
	return o, nil
}

// nameStart is the offset of the opening quote of a name that ends before end.
func nameStart(src []byte, end int64) int64 {
	for i := end - 2; i >= 0; i-- {
		if src[i] == '"' && (i == 0 || src[i-1] != '\\') {
			return i
		}
	}
	return 0
}

// lineColumn is "line:column" of an offset, both from 1.
func lineColumn(src []byte, offset int64) string {
	before := src[:min(offset, int64(len(src)))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf("%d:%d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

func tokenText(t json.Token, err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the end of the file"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%v", t)
}

// fileError is a file that cannot be read, as a problem: the path is told once.
func fileError(path string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return one(path, "", "cannot be read: %v", err)
}

// quoteJSON is a JSON string.
func quoteJSON(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can be encoded
	return strings.TrimSuffix(b.String(), "\n")
}
