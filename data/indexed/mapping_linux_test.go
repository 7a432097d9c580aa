package indexed_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/data/indexed"
)

// resident is the memory of this process in bytes.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(string(bytes.Fields(b)[1]))
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

// sparse is a dataset of n sequences of uint16 with length tokens each, all 0, whose PREFIX.bin takes no disk.
func sparse(t *testing.T, n, length int) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "d")
	le := binary.LittleEndian
	idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8)
	idx = le.AppendUint64(le.AppendUint64(idx, uint64(n)), uint64(n+1))
	for range n {
		idx = le.AppendUint32(idx, uint32(length))
	}
	for i := range n {
		idx = le.AppendUint64(idx, uint64(2*i*length))
	}
	for i := range n + 1 {
		idx = le.AppendUint64(idx, uint64(i))
	}
	require.NoError(t, os.WriteFile(prefix+".idx", idx, 0o600))
	require.NoError(t, os.WriteFile(prefix+".bin", nil, 0o600))
	require.NoError(t, os.Truncate(prefix+".bin", int64(2*n*length)))
	return prefix
}

// TestLargeFilesAreNotRead opens 800 MB and reads from its start, middle and end.
func TestLargeFilesAreNotRead(t *testing.T) {
	prefix := sparse(t, 4000, 100_000)
	before := resident(t)
	f, err := indexed.Open(prefix)
	require.NoError(t, err)
	require.EqualValues(t, 400_000_000, f.Tokens())
	tokens := make([]int32, 1000)
	for i := range 100 {
		require.NoError(t, f.Read(tokens, i*40, 50_000))
	}
	require.Less(t, resident(t)-before, 32<<20, "bytes more in memory")
	require.NoError(t, f.Close())
}

// TestFileCutWhileOpen: the kernel's signal becomes an error.
func TestFileCutWhileOpen(t *testing.T) {
	prefix := sparse(t, 2, 100_000)
	f, err := indexed.Open(prefix)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(prefix+".bin", 4096))
	require.NoError(t, f.Read(make([]int32, 10), 0, 0))
	err = f.Read(make([]int32, 10), 1, 0)
	require.ErrorContains(t, err, "d.bin: found bytes that are no longer there at byte 200000, expected a file that does not change while it is open")
	require.NoError(t, f.Close())
}
