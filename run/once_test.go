package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"phalanx/checkpoint"
	"phalanx/internal/disk"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/train"
)

// What a process has written of a checkpoint and told, the next one tells and does not write again; neither does it try again
// what has failed.
func TestProcessesWriteOnce(t *testing.T) {
	dir, parts := t.TempDir(), t.TempDir()
	process := func(d disk.Disk) *saver {
		j := &job{o: Options{Logger: zap.NewNop()}}
		j.s.Checkpoint.Save = dir
		return &saver{j: j, disk: d, parts: parts}
	}
	at := func(iteration int) model.Snapshot {
		return model.Snapshot{Position: train.Position{Iteration: iteration}, Tensors: []model.StateView{
			{Name: "w", Spec: &nn.Spec{Name: "w", Shape: []int{4}, Shard: nn.Unsharded}, F64: []float64{1, 2, 3, float64(iteration)}}}}
	}
	file := func(iteration int) string {
		return filepath.Join(checkpoint.Aside(dir, iteration), "rank_00001.safetensors")
	}
	first, err := process(disk.OS{}).once(1, at(4))
	require.NoError(t, err)
	require.FileExists(t, file(4))
	require.NoError(t, os.RemoveAll(checkpoint.Aside(dir, 4))) // its checkpoint was made
	again, err := process(disk.OS{}).once(1, at(4))
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoFileExists(t, file(4))
	other, err := process(disk.OS{}).once(1, at(8))
	require.NoError(t, err)
	require.NotEqual(t, first, other)
	require.FileExists(t, file(8))

	_, failed := process(fullDisk{}).once(1, at(12))
	require.ErrorIs(t, failed, errFull)
	_, err = process(disk.OS{}).once(1, at(12))
	require.EqualError(t, err, failed.Error())
	require.NoFileExists(t, file(12))
}

var errFull = errors.New("no space left")

// fullDisk takes no tensors.
type fullDisk struct{ disk.OS }

func (d fullDisk) Create(path string) (disk.OutFile, error) {
	if filepath.Ext(path) == ".safetensors" {
		return nil, errFull
	}
	return d.OS.Create(path)
}
