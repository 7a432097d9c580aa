// Package faulty is a disk that fails as a test wants it to.
package faulty

import (
	"sync"
	"syscall"

	"phalanx/internal/disk"
)

// Disk is the disk of this machine behind faults. Every field may be changed between operations, under the lock that Change takes.
type Disk struct {
	disk.OS
	mu sync.Mutex
	f  Faults
}

// Faults are what goes wrong. The zero value is nothing.
type Faults struct {
	Until    <-chan struct{} // writes wait until it is closed; nil: they do not
	Full     bool            // writes store half of their bytes and fail with ENOSPC
	SyncEIO  bool            // syncs of files fail with EIO
	DirEIO   bool            // syncs of folders fail with EIO
	TearAt   int64           // files lose what is written behind this many bytes, and nobody is told; 0: none
	RotBit   int64           // reads flip this bit, from 1; 0: none
	StaleFor string          // reads give the contents of this file; "": none
}

// Change sets the faults from here on.
func (d *Disk) Change(f Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.f = f
}

func (d *Disk) faults() Faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.f
}

// Create implements disk.Disk.
func (d *Disk) Create(path string) (disk.OutFile, error) {
	f, err := d.OS.Create(path)
	if err != nil {
		return nil, err
	}
	return &file{OutFile: f, d: d}, nil
}

// SyncDir implements disk.Disk.
func (d *Disk) SyncDir(path string) error {
	if d.faults().DirEIO {
		return syscall.EIO
	}
	return d.OS.SyncDir(path)
}

// ReadFile is a whole file, or what the disk makes of it.
func (d *Disk) ReadFile(path string) ([]byte, error) {
	f := d.faults()
	if f.StaleFor != "" {
		path = f.StaleFor
	}
	b, err := d.OS.ReadFile(path)
	if bit := f.RotBit - 1; bit >= 0 && bit/8 < int64(len(b)) {
		b[bit/8] ^= 1 << (bit % 8)
	}
	return b, err
}

type file struct {
	disk.OutFile
	d  *Disk
	at int64
}

// Write implements io.Writer.
func (f *file) Write(b []byte) (int, error) {
	faults := f.d.faults()
	if faults.Until != nil {
		<-faults.Until
	}
	if faults.Full {
		n, err := f.OutFile.Write(b[:len(b)/2])
		if err == nil {
			err = syscall.ENOSPC
		}
		return n, err
	}
	kept := b
	if faults.TearAt > 0 {
		kept = b[:max(0, min(faults.TearAt-f.at, int64(len(b))))]
	}
	f.at += int64(len(b))
	if _, err := f.OutFile.Write(kept); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Sync implements disk.OutFile.
func (f *file) Sync() error {
	if f.d.faults().SyncEIO {
		return syscall.EIO
	}
	return f.OutFile.Sync()
}
