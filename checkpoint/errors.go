// Package checkpoint reads and writes weights: safetensors files of our own making, the hash that tells whether two
// runs hold the same bits, and the config.json beside the weights.
package checkpoint

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of FormatError, for errors.Is.
var (
	ErrFormat    = errors.New("not a valid safetensors file")
	ErrTruncated = errors.New("truncated safetensors file")
	ErrNoTensor  = errors.New("no such tensor")
	ErrDType     = errors.New("wrong element type")
	ErrManifest  = errors.New("not a valid manifest")
	ErrCorrupt   = errors.New("corrupt data")
	ErrMismatch  = errors.New("a checkpoint of another model")
	ErrMissing   = errors.New("no checkpoint")
)

// FormatError is a file, or a tensor of it, that is not what it has to be: a file of the user to be mended (exit 2).
type FormatError struct {
	Path     string
	Tensor   string // "": the file as a whole
	Found    string
	Expected string
	Kind     error // one of the above
}

// Error reads `PATH: truncated safetensors file: tensor "x": found …, expected …`.
func (e *FormatError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v: ", e.Path, e.Kind)
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", e.Tensor)
	}
	fmt.Fprintf(&b, "found %s, expected %s", e.Found, e.Expected)
	return b.String()
}

// Unwrap gives the kind.
func (e *FormatError) Unwrap() error { return e.Kind }
