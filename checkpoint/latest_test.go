package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
)

func TestLatest(t *testing.T) {
	dir := t.TempDir()
	got, err := checkpoint.Latest(dir)
	require.NoError(t, err)
	require.Equal(t, dir, got)
	require.NoError(t, checkpoint.WriteLatest(dir, 40))
	require.NoError(t, checkpoint.WriteLatest(dir, 100))
	got, err = checkpoint.Latest(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "iter_0000100"), got)
	file := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	got, err = checkpoint.Latest(file)
	require.NoError(t, err)
	require.Equal(t, file, got)
	require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.LatestName), []byte("release"), 0o644))
	_, err = checkpoint.Latest(dir)
	require.ErrorContains(t, err, "latest_checkpointed_iteration.txt")
	require.ErrorContains(t, err, "the number of an iteration")
}
