//go:build unix

package indexed

import (
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
)

// mapping is a file in the address space.
type mapping struct {
	data []byte
	size int64
	drop runtime.Cleanup
}

func newMapping(f *os.File, size int64) (*mapping, error) {
	if size == 0 { // cannot be mapped
		return &mapping{}, nil
	}
	if int64(int(size)) != size {
		return nil, errors.New("more bytes than this machine can address")
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	m := &mapping{data: data, size: size}
	m.drop = runtime.AddCleanup(m, func(data []byte) { _ = syscall.Munmap(data) }, data) // of a dataset that nobody closed
	return m, nil
}

// ReadAt copies from the mapping. Pages that the file no longer has, because somebody cut it, are an error, not the
// signal that the kernel makes of them.
func (m *mapping) ReadAt(p []byte, offset int64) (n int, err error) {
	if offset < 0 || offset > m.size {
		return 0, io.EOF
	}
	defer runtime.KeepAlive(m) // as long as data is copied
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, errShrank
		}
	}()
	if n = copy(p, m.data[offset:]); n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

var errShrank = errors.New("bytes that are no longer there")

// Close unmaps the file.
func (m *mapping) Close() error {
	if m.data == nil {
		return nil
	}
	m.drop.Stop()
	data := m.data
	m.data, m.size = nil, 0
	return os.NewSyscallError("munmap", syscall.Munmap(data))
}
