package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
)

// fileBytesMax bounds one file after unpacking. A token takes 4 bytes in memory, in every process; a CPU trains on
// some millions of tokens a day. It also stops a small .gz that unpacks without end.
const fileBytesMax = 256 << 20

// readFile is the contents of a file, unpacked when its name ends in .gz, and no longer than limit.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fileError(path, err)
	}
	if !st.Mode().IsRegular() {
		what := "a special file"
		if st.IsDir() {
			what = "a folder"
		}
		return nil, problem(path, 0, "found %s, expected a file; name its files one by one", what)
	}
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, gzipError(path, err)
		}
		defer z.Close()
		r = z
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil && strings.HasSuffix(path, ".gz"):
		return nil, gzipError(path, err)
	case err != nil:
		return nil, fileError(path, err)
	case int64(len(b)) > limit:
		return nil, problem(path, 0, "found more than %d bytes, expected at most that; split it and use a part", limit)
	}
	return b, nil
}

// checkUTF8 says where text is not UTF-8.
func checkUTF8(path string, b []byte) error {
	at := badUTF8(b)
	if at < 0 {
		return nil
	}
	hint := "convert it to UTF-8 first"
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		hint = "it starts like a gzip file: give it a name that ends in .gz"
	}
	return problem(path, 0, "found no UTF-8 at byte %d, expected a text; %s", at, hint)
}

// badUTF8 is the offset of the first byte that starts no UTF-8 character; -1 when there is none.
func badUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
}

func fileError(path string, err error) error {
	reason := err
	var pe *fs.PathError
	if errors.As(err, &pe) {
		reason = pe.Err
	}
	e := &Error{Err: err}
	if errors.Is(err, fs.ErrNotExist) {
		e.add(path, 0, "no such file; relative paths start in the folder of the scenario file")
	} else {
		e.add(path, 0, "%v", reason)
	}
	return e
}

func gzipError(path string, err error) error {
	what := fmt.Sprint(err)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		what = "it ends too early"
	}
	e := &Error{Err: err}
	e.add(path, 0, "not a whole gzip file: %s", what)
	return e
}

// count is "1 file", "3 files", "2 microbatches".
func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "batch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
