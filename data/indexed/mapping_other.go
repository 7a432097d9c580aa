//go:build !unix

package indexed

import "os"

// mapping is an open file where files cannot be mapped: it is read piece by piece.
type mapping struct {
	*os.File
	size int64
}

func newMapping(f *os.File, size int64) (*mapping, error) {
	again, err := os.Open(f.Name())
	return &mapping{again, size}, err
}
