package disk_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/disk"
	"phalanx/internal/disk/faulty"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// A file is replaced whole or not at all, whatever fails on the way.
func TestReplace(t *testing.T) {
	d, path := &faulty.Disk{}, filepath.Join(t.TempDir(), "x")
	require.NoError(t, disk.ReplaceBytes(d, path, []byte("old")))
	for _, f := range []faulty.Faults{{Full: true}, {SyncEIO: true}} {
		d.Change(f)
		var we *disk.WriteError
		require.ErrorAs(t, disk.ReplaceBytes(d, path, []byte("new")), &we)
		require.Equal(t, path, we.Path)
	}
	d.Change(faulty.Faults{})
	refusal := errors.New("no")
	require.Equal(t, refusal, disk.ReplaceVia(d, path+".a", path, 3, text("new"), func() error { return refusal }))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(b))
	names, err := d.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, names)
	require.NoError(t, disk.ReplaceBytes(d, path, []byte("new")))
	b, err = d.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(b))
}

// What is needed is told where it is known.
func TestFullDisk(t *testing.T) {
	require.EqualError(t, disk.Failed("x", "write", 44, syscall.ENOSPC), "cannot write x: write: no space left on device: the disk is full, 44 bytes are needed; free space or choose another folder")
	require.EqualError(t, disk.Failed("x", "create", 0, syscall.ENOSPC), "cannot write x: create: no space left on device: the disk is full; free space or choose another folder")
}
