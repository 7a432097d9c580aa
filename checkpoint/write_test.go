package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/disk"
	"phalanx/tensor"
)

func TestWriteBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, Write(path, []Tensor{
		Of("b", []float32{1}, 1, 1), OfBools("a", []bool{true, false}, 2)}, map[string]string{"z": "1", "k": "v"}))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	head := `{"__metadata__":{"k":"v","z":"1"},"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},` +
		`"b":{"dtype":"F32","shape":[1,1],"data_offsets":[2,6]}}`
	pad := (8 - len(head)%8) % 8
	want := string([]byte{byte(len(head) + pad), 0, 0, 0, 0, 0, 0, 0}) + head + strings.Repeat(" ", pad) + "\x01\x00\x00\x00\x80\x3f"
	require.Equal(t, want, string(got))
	require.NoFileExists(t, path+".partial")
}

func TestWriteReplacesWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, os.WriteFile(path+".partial", []byte("left by a killed writer, longer than the new file will be"+strings.Repeat("x", 500)), 0o600))
	require.NoError(t, Write(path, []Tensor{Of("a", []int64{1}, 1)}, nil))
	first, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, Write(path, []Tensor{Of("a", []int64{1}, 1)}, nil))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, first, again, "equal tensors give equal files")
}

func TestWriteRefusesWhatCouldNotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	one := []float32{1}
	for want, ts := range map[string][]Tensor{
		`two tensors named "a": each name once`:                             {Of("a", one, 1), Of("a", one, 1)},
		`a tensor named "": found an empty, reserved or non-UTF-8 name`:     {Of("", one, 1)},
		`a tensor named "__metadata__": found an empty, reserved`:           {Of("__metadata__", one, 1)},
		`a tensor named "\xff": found an empty, reserved or non-UTF-8 name`: {Of("\xff", one, 1)},
		`tensor "a": found 4 bytes, expected 8 for F32 [2]`:                 {Of("a", one, 2)},
		`tensor "a": found 0 bytes, expected 0 for DType(99) [1]`:           {{Name: "a", DType: tensor.DType(99), Shape: []int{1}}},
	} {
		require.ErrorContains(t, Write(path, ts, nil), want)
		require.NoFileExists(t, path)
	}
}

// brokenDisk fails at one operation of files.
type brokenDisk struct {
	disk.OS
	at  string
	err error
}

func (d brokenDisk) Create(path string) (disk.OutFile, error) {
	if d.at == "create" {
		return nil, d.err
	}
	f, err := d.OS.Create(path)
	return brokenFile{f, d.at, d.err}, err
}

// brokenFile fails at one operation.
type brokenFile struct {
	disk.OutFile
	at  string
	err error
}

func (f brokenFile) Write(b []byte) (int, error) {
	if f.at == "write" {
		return 0, f.err
	}
	return f.OutFile.Write(b)
}

func (f brokenFile) Sync() error {
	if f.at == "sync" {
		return f.err
	}
	return f.OutFile.Sync()
}

func (f brokenFile) Close() error {
	if err := f.OutFile.Close(); f.at != "close" {
		return err
	}
	return f.err
}

func TestWriteFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	defer func() { written = disk.OS{} }()
	for _, c := range []struct {
		at   string
		err  error
		want string
	}{
		{"write", syscall.ENOSPC, "write: no space left on device: the disk is full, 68 bytes are needed; free space or choose another folder"},
		{"write", syscall.EDQUOT, "write: disk quota exceeded: the disk is full"},
		{"sync", syscall.EIO, "sync: input/output error"},
		{"close", syscall.ENOSPC, "close: no space left on device: the disk is full"},
		{"create", &os.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "create: read-only file system: the folder cannot be written; choose another or change its permissions"},
		{"create", &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, "create: permission denied: the folder cannot be written"},
	} {
		written = brokenDisk{at: c.at, err: c.err}
		err := Write(path, []Tensor{Of("a", []float32{1}, 1)}, nil)
		var we *disk.WriteError
		require.ErrorAs(t, err, &we)
		require.ErrorContains(t, err, "cannot write "+path+": "+c.want)
		var errno syscall.Errno
		require.True(t, errors.As(err, &errno))
		old, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "old", string(old), "a failed write leaves the old file")
		require.NoFileExists(t, path+".partial")
	}
}

func TestWriteIntoNothing(t *testing.T) {
	dir := t.TempDir()
	err := Write(filepath.Join(dir, "no", "w.safetensors"), nil, nil)
	require.ErrorContains(t, err, "the folder does not exist; make it first")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	err = Write(filepath.Join(dir, "taken"), nil, nil)
	require.ErrorContains(t, err, "rename: file exists")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.ErrorContains(t, Save(filepath.Join(dir, "file"), &config.Model{}, nil, nil), "create folder: not a directory")
}

func TestWeightsSHA256(t *testing.T) {
	a, b := Of("a", []float32{1, 2}, 2, 1), Of("b", []int64{}, 0)
	s := Of("s", []float64{1})
	sum := sha256.Sum256([]byte("a\x00F32\x002,1\x00\x00\x00\x80\x3f\x00\x00\x00\x40" + "b\x00I64\x000\x00" + "s\x00F64\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x3f"))
	require.Equal(t, hex.EncodeToString(sum[:]), WeightsSHA256([]Tensor{s, b, a}), "order of the argument does not matter")
	require.NotEqual(t, WeightsSHA256([]Tensor{a}), WeightsSHA256([]Tensor{Of("a", []float32{1, 2}, 1, 2)}), "shape counts")
	require.Panics(t, func() { WeightsSHA256([]Tensor{a, a}) })
}

func TestSaveAndConfig(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	m := &config.Model{NumLayers: 2, RotaryBase: 10000, PositionEmbedding: "rope", MTPLossScaling: 0.1, TensorParallel: 4,
		MoELayerFreq: config.LayerFreq{Pattern: []int{0, 1}}}
	require.NoError(t, Save(dir, m, []Tensor{Of("a", []float32{1}, 1)}, nil))
	got, err := os.ReadFile(filepath.Join(dir, ConfigName))
	require.NoError(t, err)
	text := string(got)
	require.True(t, strings.HasPrefix(text, "{\n  \"num_layers\": 2,\n  \"hidden_size\": 0,\n"), text)
	require.Contains(t, text, "\"rotary_base\": 10000,\n")
	require.Contains(t, text, "\"position_embedding_type\": \"rope\",\n")
	require.Contains(t, text, "\"moe_layer_freq\": [0,1],\n")
	require.Contains(t, text, "\"mtp_loss_scaling_factor\": 0.1,\n")
	require.NotContains(t, text, "parallel", "how the run was cut is no property of the weights")
	m.TensorParallel, m.SequenceParallel = 1, true
	b, err := configJSON(m)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
	m.MoELayerFreq = config.LayerFreq{}
	b, err = configJSON(m)
	require.NoError(t, err)
	require.Contains(t, string(b), "\"moe_layer_freq\": 1,\n")

	f, err := OpenWeights(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, f.Names())
	require.NoError(t, f.Close())
}
