package checkpoint_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
)

// TestWriteStream: what is streamed in pieces is, byte for byte, the file that Write makes of whole tensors, and can be
// read in pieces.
func TestWriteStream(t *testing.T) {
	dir := t.TempDir()
	whole := []checkpoint.Tensor{checkpoint.Of("b", []float32{1, 2, 3, 4, 5, 6}, 2, 3), checkpoint.Of("a", []int64{7}, 1)}
	require.NoError(t, checkpoint.Write(filepath.Join(dir, "whole"), whole, map[string]string{"k": "v"}))
	var order []string
	infos := []checkpoint.Info{{Name: "b", DType: "F32", Shape: []int{2, 3}}, {Name: "a", DType: "I64", Shape: []int{1}}}
	require.NoError(t, checkpoint.WriteStream(filepath.Join(dir, "streamed"), infos, map[string]string{"k": "v"}, func(w io.Writer, name string) error {
		order = append(order, name)
		data := whole[0].Data
		if name == "a" {
			data = whole[1].Data
		}
		for _, c := range data {
			if _, err := w.Write([]byte{c}); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Equal(t, []string{"a", "b"}, order)
	want, err := os.ReadFile(filepath.Join(dir, "whole"))
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "streamed"))
	require.NoError(t, err)
	require.Equal(t, want, got)

	f, err := checkpoint.Open(filepath.Join(dir, "streamed"))
	require.NoError(t, err)
	defer f.Close()
	piece := make([]byte, 5)
	require.NoError(t, f.ReadAt("b", piece, 7))
	require.Equal(t, whole[0].Data[7:12], piece)
	require.ErrorContains(t, f.ReadAt("b", piece, 20), "bytes 20 to 25 of 24")
	require.ErrorIs(t, f.ReadAt("c", piece, 0), checkpoint.ErrNoTensor)
}

func TestWriteStreamErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w")
	one := []checkpoint.Info{{Name: "a", DType: "F32", Shape: []int{1}}}
	fill := func(n int) func(io.Writer, string) error {
		return func(w io.Writer, _ string) error { _, err := w.Write(make([]byte, n)); return err }
	}
	require.ErrorContains(t, checkpoint.WriteStream(path, one, nil, fill(3)), `tensor "a": 3 bytes written, expected 4 for F32 [1]`)
	require.ErrorContains(t, checkpoint.WriteStream(path, one, nil, fill(5)), "5 bytes written, expected 4")
	own := errors.New("own")
	require.ErrorIs(t, checkpoint.WriteStream(path, one, nil, func(io.Writer, string) error { return own }), own)
	require.ErrorContains(t, checkpoint.WriteStream(path, append(one, one...), nil, fill(4)), `two tensors named "a"`)
	require.ErrorContains(t, checkpoint.WriteStream(path, []checkpoint.Info{{Name: "", DType: "F32"}}, nil, fill(4)), "empty")
	require.ErrorContains(t, checkpoint.WriteStream(path, []checkpoint.Info{{Name: "x", DType: "F128"}}, nil, fill(4)), "cannot write F128")
	_, err := os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist, "a failed file leaves nothing behind")
}
