package bpe

import (
	"fmt"
	"os"
)

// fileBytesMax bounds a tokenizer's file: the largest published ones have some tens of megabytes.
const fileBytesMax = 256 << 20

// idsMax bounds ids: four times the largest vocabulary in use, as model.padded_vocab_size.
const idsMax = 1 << 20

// Error is a tokenizer that cannot be used: the user has to name another file.
type Error struct {
	Path   string
	Line   int    // 1-based; 0: none
	Reason string // what was found, what was expected
	Err    error  // nil, or the cause
}

// Error is one sentence.
func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Reason)
	}
	return e.Path + ": " + e.Reason
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// wrong is an Error without a path yet.
func wrong(format string, args ...any) *Error { return &Error{Reason: fmt.Sprintf(format, args...)} }

// readFile is a file of a tokenizer.
func readFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return nil, &Error{Path: path, Reason: "no such file; relative paths start in the folder of the scenario file", Err: err}
	case err != nil:
		return nil, &Error{Path: path, Reason: err.Error(), Err: err}
	case !st.Mode().IsRegular():
		return nil, &Error{Path: path, Reason: "found a folder or a special file, expected a file; for huggingface its tokenizer.json"}
	case st.Size() > fileBytesMax:
		return nil, &Error{Path: path, Reason: fmt.Sprintf("found %d bytes, expected at most %d", st.Size(), fileBytesMax)}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Path: path, Reason: err.Error(), Err: err}
	}
	return b, nil
}
