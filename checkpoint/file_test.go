package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/checkpoint"
)

// fileOf is a safetensors file put together by hand: the length, the header, the data.
func fileOf(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

func parse(b []byte) (*checkpoint.File, error) {
	return checkpoint.Parse(bytes.NewReader(b), int64(len(b)), "w.safetensors")
}

func TestReadHandWrittenBytes(t *testing.T) {
	f, err := parse(fileOf(`{"__metadata__":{"format":"pt"},`+
		`"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},`+
		`"a":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},`+
		`"none":{"dtype":"F64","shape":[0,3],"data_offsets":[10,10]},`+
		`"s":{"dtype":"I64","shape":[],"data_offsets":[10,18]}}   `,
		1, 0, 0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "none", "s"}, f.Names())
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	info, ok := f.Info("a")
	require.True(t, ok)
	require.Equal(t, checkpoint.Info{Name: "a", DType: "F32", Shape: []int{1, 2}, From: 2, To: 10}, info)
	_, ok = f.Info("c")
	require.False(t, ok)

	a, err := f.Float32s("a")
	require.NoError(t, err)
	require.Equal(t, []float32{1, -2}, a)
	wide, err := f.Float64s("a")
	require.NoError(t, err)
	require.Equal(t, []float64{1, -2}, wide)
	b, err := f.Bools("b")
	require.NoError(t, err)
	require.Equal(t, []bool{true, false}, b)
	s, err := f.Int64s("s")
	require.NoError(t, err)
	require.Equal(t, []int64{-2}, s)
	none, err := f.Float64s("none")
	require.NoError(t, err)
	require.Empty(t, none)
	raw, err := f.Raw("b")
	require.NoError(t, err)
	require.Equal(t, []byte{1, 0}, raw)
	require.NoError(t, f.Close())
}

func TestReadHalfPrecision(t *testing.T) {
	f, err := parse(fileOf(`{"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]},`+
		`"d":{"dtype":"F64","shape":[1],"data_offsets":[16,24]}}`,
		0x00, 0x3c, 0x00, 0xc1, 0xff, 0x7b, 0x01, 0x00, 0x00, 0xfc, 0x00, 0x80, 0x80, 0x3f, 0x20, 0xc0,
		0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f))
	require.NoError(t, err)
	h, err := f.Float64s("h")
	require.NoError(t, err)
	require.Equal(t, []float64{1, -2.5, 65504, math.Pow(2, -24), math.Inf(-1), 0}, h)
	require.True(t, math.Signbit(h[5]), "minus zero keeps its sign")
	b, err := f.Float32s("b")
	require.NoError(t, err)
	require.Equal(t, []float32{1, -2.5}, b)
	d, err := f.Float32s("d")
	require.NoError(t, err)
	require.Equal(t, []float32{0.1}, d, "F64 rounds to nearest")
}

func TestReadHalfNaN(t *testing.T) {
	f, err := parse(fileOf(`{"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`, 0x01, 0x7e))
	require.NoError(t, err)
	h, err := f.Float32s("h")
	require.NoError(t, err)
	require.True(t, math.IsNaN(float64(h[0])))
}

func TestReadIntegers(t *testing.T) {
	f, err := parse(fileOf(`{"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"I16","shape":[1],"data_offsets":[4,6]},`+
		`"c":{"dtype":"I8","shape":[1],"data_offsets":[6,7]},"d":{"dtype":"U32","shape":[1],"data_offsets":[7,11]},`+
		`"e":{"dtype":"U16","shape":[1],"data_offsets":[11,13]},"f":{"dtype":"U8","shape":[1],"data_offsets":[13,14]}}`,
		0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xfd))
	require.NoError(t, err)
	want := map[string]int64{"a": -1, "b": -2, "c": -3, "d": 1<<32 - 1, "e": 65534, "f": 253}
	for name, v := range want {
		got, err := f.Int64s(name)
		require.NoError(t, err)
		require.Equal(t, []int64{v}, got, name)
	}
}

func TestHeaderErrors(t *testing.T) {
	one := func(entry string) []byte { return fileOf(`{"x":`+entry+`}`, 0, 0, 0, 0) }
	manyDims := `{"dtype":"F32","shape":[` + strings.Repeat("1,", 32) + `1],"data_offsets":[0,4]}`
	for _, c := range []struct {
		name string
		file []byte
		kind error
		want string
	}{
		{"empty", nil, checkpoint.ErrTruncated, "found 0 bytes, expected an 8-byte header length at the start"},
		{"header cut", fileOf(`{}`)[:9], checkpoint.ErrTruncated, "found 1 bytes after the header length, expected a header of 2"},
		{"header too big", []byte("this is a text, not a tensor"), checkpoint.ErrFormat, "expected at most 100000000; this may be no safetensors file"},
		{"no object", fileOf(`[]`), checkpoint.ErrFormat, "found a header that does not start with {, expected a JSON object"},
		{"no header", fileOf(``), checkpoint.ErrFormat, "found a header of 0 bytes, expected a JSON object"},
		{"trailing comma", fileOf(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}`), checkpoint.ErrFormat, "invalid character"},
		{"not UTF-8", fileOf("{\"\xff\":1}"), checkpoint.ErrFormat, "found a header that is not UTF-8"},
		{"unfinished", fileOf(`{"x":`), checkpoint.ErrFormat, "found the end of the header inside it"},
		{"bad JSON", fileOf(`{"x" 1}`), checkpoint.ErrFormat, "invalid character"},
		{"after the object", fileOf(`{}x `), checkpoint.ErrFormat, "found 1 bytes after the header's closing }"},
		{"null", fileOf("{}\x00"), checkpoint.ErrFormat, "found 1 bytes after the header's closing }"},
		{"name twice", fileOf(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`),
			checkpoint.ErrFormat, `tensor "x": found the name twice, expected each name once`},
		{"metadata twice", fileOf(`{"__metadata__":{},"__metadata__":{}}`), checkpoint.ErrFormat, "found the name twice"},
		{"metadata key twice", fileOf(`{"__metadata__":{"a":"1","a":"2"}}`), checkpoint.ErrFormat, `found the key "a" twice`},
		{"metadata no text", fileOf(`{"__metadata__":{"a":1}}`), checkpoint.ErrFormat, `found 1 as metadata key "a", expected a string`},
		{"entry no object", fileOf(`{"x":7}`), checkpoint.ErrFormat, `tensor "x": found 7 as the entry, expected an object`},
		{"key twice", one(`{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, `found the key "dtype" twice`},
		{"unknown key", one(`{"dtype":"F32","shape":[1],"strides":[1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, `found the key "strides", expected dtype, shape and data_offsets`},
		{"no dtype", one(`{"shape":[1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found no dtype"},
		{"dtype no text", one(`{"dtype":4,"shape":[1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found 4 as dtype, expected a string"},
		{"no shape", one(`{"dtype":"F32","data_offsets":[0,4]}`), checkpoint.ErrFormat, "found no shape"},
		{"no offsets", one(`{"dtype":"F32","shape":[1]}`), checkpoint.ErrFormat, "found no data_offsets"},
		{"unknown dtype", one(`{"dtype":"F128","shape":[1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, `found dtype "F128", expected one of [BF16 BOOL F16`},
		{"shape no list", one(`{"dtype":"F32","shape":1,"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found 1 as shape, expected a list of numbers"},
		{"shape negative", one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found -1 in shape, expected whole numbers from 0 to 2^62"},
		{"shape fraction", one(`{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found 1.0 in shape"},
		{"shape nested", one(`{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "found [ in shape"},
		{"shape too long", one(manyDims), checkpoint.ErrFormat, "found more than 32 numbers in shape, expected at most 32"},
		{"shape overflow", one(`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}`), checkpoint.ErrFormat, "expected less than 2^62 bytes"},
		{"three offsets", one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}`), checkpoint.ErrFormat, "found more than 2 numbers in data_offsets"},
		{"one offset", one(`{"dtype":"F32","shape":[1],"data_offsets":[0]}`), checkpoint.ErrFormat, "found data_offsets [0], expected [from, to] with from ≤ to"},
		{"backwards", one(`{"dtype":"F32","shape":[1],"data_offsets":[4,0]}`), checkpoint.ErrFormat, "found data_offsets [4 0]"},
		{"size", one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`), checkpoint.ErrFormat, `tensor "x": found 4 bytes, expected 8 for F32 [2]`},
		{"out of range", one(`{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`), checkpoint.ErrTruncated, "found 4 bytes of data, expected at least 8, where the tensor ends"},
		{"far out", one(`{"dtype":"F32","shape":[1],"data_offsets":[4,8]}`), checkpoint.ErrFormat, "found bytes from 4, a gap after the start of the data, expected bytes from 0"},
		{"trailing", one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`), checkpoint.ErrFormat, `found 3 trailing bytes after "x"`},
		{"no tensor", fileOf(`{}`, 1), checkpoint.ErrFormat, "found 1 trailing bytes after the start of the data"},
		{"overlap", fileOf(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 0, 0, 0, 0),
			checkpoint.ErrFormat, `tensor "b": found bytes from 2, which overlap "a", expected bytes from 3`},
		{"gap", fileOf(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 0, 0, 0, 0),
			checkpoint.ErrFormat, `tensor "b": found bytes from 2, a gap after "a", expected bytes from 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.file)
			var fe *checkpoint.FormatError
			require.ErrorAs(t, err, &fe)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "w.safetensors: ")
		})
	}
}

func TestReaderErrors(t *testing.T) {
	f, err := parse(fileOf(`{"model.norm.weight":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"BOOL","shape":[2],"data_offsets":[1,3]}}`, 1, 0, 2))
	require.NoError(t, err)
	_, err = f.Float32s("model.norm.weights")
	require.ErrorIs(t, err, checkpoint.ErrNoTensor)
	require.EqualError(t, err, `w.safetensors: no such tensor: tensor "model.norm.weights": found 2 tensors, none of this name, `+
		`expected the tensor (nearest name: "model.norm.weight")`)
	for _, read := range []func(string) error{
		func(n string) error { _, err := f.Float64s(n); return err }, func(n string) error { _, err := f.Float32s(n); return err },
		func(n string) error { _, err := f.Int64s(n); return err }, func(n string) error { _, err := f.Bools(n); return err },
		func(n string) error { _, err := f.Raw(n); return err },
	} {
		require.ErrorIs(t, read("zzz"), checkpoint.ErrNoTensor)
	}
	_, err = f.Float64s("model.norm.weight")
	require.ErrorIs(t, err, checkpoint.ErrDType)
	require.ErrorContains(t, err, "found F8_E4M3, expected F64, F32, F16 or BF16")
	_, err = f.Int64s("b")
	require.ErrorContains(t, err, "found BOOL, expected I64, I32, I16, I8, U32, U16 or U8")
	_, err = f.Bools("model.norm.weight")
	require.ErrorContains(t, err, "found F8_E4M3, expected BOOL")
	_, err = f.Bools("b")
	require.ErrorContains(t, err, "found a byte at element 1 that is neither 0 nor 1")
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := checkpoint.Open(filepath.Join(dir, "none.safetensors"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "none.safetensors: no such file or directory")
	_, err = checkpoint.Open(dir)
	require.ErrorContains(t, err, "found a folder, expected a safetensors file")
	_, err = checkpoint.OpenWeights(dir)
	require.ErrorContains(t, err, "found a folder without it, expected a file model.safetensors")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte("{}"), 0o600))
	_, err = checkpoint.OpenWeights(dir)
	require.ErrorContains(t, err, "weights split over several files")
	_, err = checkpoint.OpenWeights(filepath.Join(dir, "nowhere"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestFileThatShrinksAfterOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, checkpoint.Write(path, []checkpoint.Tensor{checkpoint.Of("a", make([]float64, 100), 100)}, nil))
	f, err := checkpoint.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, 200))
	_, err = f.Float64s("a")
	require.ErrorIs(t, err, checkpoint.ErrTruncated)
}

func TestEveryTruncationIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, checkpoint.Write(path, []checkpoint.Tensor{
		checkpoint.Of("a", []float32{1, 2, 3}, 3), checkpoint.Of("b", []int64{4}, 1)}, map[string]string{"k": "v"}))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for n := range whole {
		_, err := parse(whole[:n])
		var fe *checkpoint.FormatError
		require.True(t, errors.As(err, &fe), "cut at %d: %v", n, err)
	}
}

func TestWrittenThenRead(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zé."\\/ ]{1,12}`), 0, 6, rapid.ID[string]).Draw(r, "names")
		meta := rapid.MapOfN(rapid.String().Filter(func(s string) bool { return strings.ToValidUTF8(s, "") == s }),
			rapid.StringMatching(`.*`), 0, 3).Draw(r, "meta")
		var tensors []checkpoint.Tensor
		for _, n := range names {
			bits := rapid.SliceOfN(rapid.Uint64(), 0, 5).Draw(r, "bits")
			data := make([]float64, len(bits))
			for i, b := range bits {
				data[i] = math.Float64frombits(b)
			}
			tensors = append(tensors, checkpoint.Of(n, data, len(data)))
		}
		path := filepath.Join(dir, "w.safetensors")
		require.NoError(r, checkpoint.Write(path, tensors, meta))
		f, err := checkpoint.Open(path)
		require.NoError(r, err)
		defer f.Close()
		require.Len(r, f.Names(), len(names))
		require.Equal(r, len(meta), len(f.Metadata()))
		for k, v := range meta {
			require.Equal(r, v, f.Metadata()[k])
		}
		for _, want := range tensors {
			got, err := f.Raw(want.Name)
			require.NoError(r, err)
			require.True(r, bytes.Equal(want.Data, got), "bits of %q", want.Name)
		}
	})
}
