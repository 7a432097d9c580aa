package checkpoint_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
)

// boundedReader fails the test when more is asked for than the file holds.
type boundedReader struct {
	t *testing.T
	b []byte
}

func (r boundedReader) ReadAt(p []byte, off int64) (int, error) {
	require.LessOrEqual(r.t, off+int64(len(p)), int64(len(r.b)), "read beyond the file")
	return bytes.NewReader(r.b).ReadAt(p, off)
}

// FuzzParse: no input panics; every refusal is a FormatError; what is accepted can be read, its tensors are together
// as long as the data, and they can be written and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(fileOf(`{}`))
	f.Add(fileOf(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}  `, 1, 2, 3, 4))
	f.Add(fileOf(`{"__metadata__":{"x":"y"},"a":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},"":{"dtype":"I8","shape":[0],"data_offsets":[1,1]}}`, 1))
	f.Add(fileOf(`{"a":{"dtype":"F64","shape":[4611686018427387904,0],"data_offsets":[0,0]}}`))
	f.Add(fileOf(`{"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}`))
	f.Add(fileOf(`{"a":[[[[[[[[[[[[[[[[[[[[`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, '{', '}'})
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := checkpoint.Parse(boundedReader{t, b}, int64(len(b)), "fuzz")
		if err != nil {
			var fe *checkpoint.FormatError
			require.True(t, errors.As(err, &fe), "%v", err)
			return
		}
		total := int64(0)
		for _, name := range file.Names() {
			info, _ := file.Info(name)
			total += info.To - info.From
			for _, read := range []func(string) error{
				func(n string) error { _, err := file.Raw(n); return err },
				func(n string) error { _, err := file.Float64s(n); return err },
				func(n string) error { _, err := file.Float32s(n); return err },
				func(n string) error { _, err := file.Int64s(n); return err },
				func(n string) error { _, err := file.Bools(n); return err },
			} {
				var fe *checkpoint.FormatError
				if err := read(name); err != nil {
					require.True(t, errors.As(err, &fe), "%v", err)
				}
			}
		}
		require.LessOrEqual(t, total, int64(len(b)))
	})
}
