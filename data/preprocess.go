package data

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"

	"phalanx/data/indexed"
)

// Preprocessing says what Preprocess writes, as Megatron's tools/preprocess_data.py does.
type Preprocessing struct {
	Inputs    []string // .jsonl, a document a line, or .txt, a document a file; .gz is unpacked
	Prefix    string   // of the files that are written, before _KEY_document
	Key       string   // of the text in a line
	Tokenizer Tokenizer
	EOD       string // token or id behind every document; empty: none
}

// Preprocessed is what has been written.
type Preprocessed struct {
	Prefix    string `json:"prefix"` // of .bin and .idx
	Documents int    `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Kind      string `json:"kind"`    // type of a token
	Skipped   int    `json:"skipped"` // documents without a token
}

// Preprocess writes the documents of files as an indexed dataset, each a sequence of its own. Lines are read one after
// the other; in memory are one of them and 12 bytes a document. What is wrong with a file is an *Error, and then
// nothing is written.
func Preprocess(ctx context.Context, p Preprocessing) (*Preprocessed, error) {
	eod, err := eodOf(p.Tokenizer, p.EOD)
	if err != nil {
		return nil, err
	}
	prefix := p.Prefix + "_" + p.Key + "_document"
	w, err := indexed.Create(prefix, indexed.KindFor(p.Tokenizer.VocabSize()))
	if err != nil {
		return nil, fileError(prefix, err)
	}
	out := &Preprocessed{Prefix: prefix, Kind: indexed.KindFor(p.Tokenizer.VocabSize()).String()}
	add := func(text string) error {
		ids := p.Tokenizer.Encode(text)
		if len(ids) == 0 {
			out.Skipped++
			return ctx.Err()
		}
		if err := w.Add(append(ids, eod...)); err != nil {
			return err
		}
		w.EndDocument()
		return ctx.Err()
	}
	if err := readTexts(p, add); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	if w.Documents() == 0 {
		return nil, errors.Join(problem(p.Inputs[0], 0, "found no document with a token in %s, expected at least one", count(len(p.Inputs), "file")), w.Abort())
	}
	out.Documents, out.Tokens = w.Documents(), w.Tokens()
	return out, w.Close()
}

// eodOf is the token that ends a document, as a list of none or one.
func eodOf(tok Tokenizer, name string) ([]int32, error) {
	if name == "" {
		return nil, nil
	}
	id, ok := TokenID(tok, name)
	if !ok {
		return nil, problem("append-eod", 0, "found %q, expected a token of the tokenizer, or an id below %d", name, tok.VocabSize())
	}
	return []int32{id}, nil
}

// readTexts calls add with the text of every document. All lines are read that a file with a problem has.
func readTexts(p Preprocessing, add func(text string) error) error {
	if len(p.Inputs) == 0 {
		return problem("preprocess", 0, "found no file, expected at least one")
	}
	for _, path := range p.Inputs {
		name := strings.TrimSuffix(path, ".gz")
		switch {
		case strings.HasSuffix(name, ".jsonl"), strings.HasSuffix(name, ".json"):
			if err := readLines(path, p.Key, add); err != nil {
				return err
			}
		case strings.HasSuffix(name, ".txt"):
			b, err := readFile(path, fileBytesMax)
			if err == nil {
				err = checkUTF8(path, b)
			}
			if err == nil {
				err = add(string(b))
			}
			if err != nil {
				return err
			}
		default:
			return problem(path, 0, "expected a name that ends in .jsonl or .txt, or one of them and .gz")
		}
	}
	return nil
}

// readLines reads one JSONL file.
func readLines(path, key string, add func(text string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fileError(path, err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return gzipError(path, err)
		}
		defer z.Close()
		r = z
	}
	errs, b := &Error{}, bufio.NewReaderSize(r, 1<<16)
	for line := 1; ; line++ {
		raw, err := oneLine(b)
		switch {
		case errors.Is(err, io.EOF):
			return errs.orNil()
		case errors.Is(err, errLongLine):
			return problem(path, line, "found a line of more than %d bytes, expected at most that", lineBytesMax)
		case err != nil && strings.HasSuffix(path, ".gz"):
			return gzipError(path, err)
		case err != nil:
			return fileError(path, err)
		}
		if len(raw) == 0 {
			continue
		}
		text, err := textOf(raw, key)
		if err != nil {
			errs.add(path, line, "%v", err)
		} else if len(errs.Problems) == 0 {
			if err := add(text); err != nil {
				return err
			}
		}
	}
}

var errLongLine = errors.New("a line too long")

// oneLine is the next line without white space around it; io.EOF behind the last one.
func oneLine(b *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		if line = append(line, part...); len(line) > lineBytesMax {
			return nil, errLongLine
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
			return bytes.TrimSpace(line), nil
		}
		return nil, err
	}
}

// textOf is the text of a line's key.
func textOf(line []byte, key string) (string, error) {
	if at := badUTF8(line); at >= 0 {
		return "", fmt.Errorf("found no UTF-8 at byte %d of the line, expected a JSON object in UTF-8", at)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return "", jsonError(err)
	}
	raw, ok := object[key]
	if !ok {
		return "", fmt.Errorf("found no key %q, expected the text of the document there", key)
	}
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return "", fmt.Errorf("%s: found %.20s, expected a text", key, raw)
	}
	return *text, nil
}

// WriteJSONL writes every document of an indexed dataset as a line {"KEY": TEXT}. eod, a token or an id, is taken off
// the end of a document.
func WriteJSONL(ctx context.Context, w io.Writer, prefix, key string, tok Tokenizer, eod string) error {
	end, err := eodOf(tok, eod)
	if err != nil {
		return err
	}
	f, err := indexed.Open(prefix)
	if err != nil {
		return indexedError(err)
	}
	defer f.Close()
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for d := range f.Documents() {
		ids, err := documentOf(f, d)
		if err != nil {
			return indexedError(err)
		}
		if n := len(ids); len(end) > 0 && n > 0 && ids[n-1] == end[0] {
			ids = ids[:n-1]
		}
		for i, id := range ids {
			if int(id) >= tok.VocabSize() {
				return problem(prefix, 0, "found token %d at %d of document %d, expected one below %d, the ids of the tokenizer", id, i, d, tok.VocabSize())
			}
		}
		if err := errors.Join(lines.Encode(map[string]string{key: tok.Decode(ids)}), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// documentOf is the tokens of a document's sequences behind each other.
func documentOf(f *indexed.File, d int) ([]int32, error) {
	from, to, err := f.Document(d)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for i := from; i < to; i++ {
		n, err := f.Length(i)
		if err != nil {
			return nil, err
		}
		part := make([]int32, n)
		if err := f.Read(part, i, 0); err != nil {
			return nil, err
		}
		ids = append(ids, part...)
	}
	return ids, nil
}
