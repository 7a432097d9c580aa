package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/disk"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// whole is a tensor of a model, with a value of its own at every place.
type wholeTensor struct {
	name  string
	shape []int
	data  []float32
}

func newWhole(name string, seed int, shape ...int) wholeTensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	w := wholeTensor{name: name, shape: shape, data: make([]float32, n)}
	for i := range w.data {
		w.data[i] = float32(seed) + float32(i)/65536
	}
	return w
}

// shardOf cuts part index of parts along dim out of a tensor, by counting the index of every element.
func shardOf[T tensor.Float](shape []int, whole []T, s nn.Shard) []T {
	var out []T
	index := make([]int, len(shape))
	for _, v := range whole {
		size := shape[s.Dim] / s.Parts
		if index[s.Dim]/size == s.Index {
			out = append(out, v)
		}
		for d := len(shape) - 1; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return out
}

// layout is how one tensor is cut: into shards, and each shard into flat ranges of different ranks.
type layoutOf struct {
	dim, parts int
	ranges     []int // ends of the ranges of a shard; the last is its length
}

func drawLayout(t *rapid.T, shape []int, label string) layoutOf {
	l := layoutOf{dim: rapid.IntRange(0, len(shape)-1).Draw(t, label+" dim")}
	var parts []int
	local := 1
	for p := 1; p <= shape[l.dim]; p++ {
		if shape[l.dim]%p == 0 {
			parts = append(parts, p)
		}
	}
	l.parts = rapid.SampledFrom(parts).Draw(t, label+" parts")
	for _, d := range shape {
		local *= d
	}
	local /= l.parts
	for at := 0; at < local; {
		at += rapid.IntRange(1, local-at).Draw(t, label+" range")
		l.ranges = append(l.ranges, at)
	}
	return l
}

// saved is a checkpoint of tensors in a folder, every rank with the ranges of its number.
func saveTensors(t require.TestingT, d disk.Disk, root string, at train.Position, block int, tensors []wholeTensor, layouts []layoutOf) (string, error) {
	held := map[int][]Held{}
	ranks := 0
	for i, w := range tensors {
		l := layouts[i]
		for index := range l.parts {
			spec := &nn.Spec{Name: w.name, Shape: w.shape, Shard: nn.Shard{Dim: l.dim, Parts: l.parts, Index: index}}
			shard, from := shardOf(w.shape, w.data, spec.Shard), 0
			for j, to := range l.ranges {
				rank := index + l.parts*(j%2) // several ranges of a shard on one rank
				held[rank] = append(held[rank], HeldOf(w.name, spec, from, shard[from:to]))
				ranks, from = max(ranks, rank+1), to
			}
		}
	}
	var parts []*Part
	for rank := range ranks {
		part, err := writeRank(d, root, rank, at, held[rank], block)
		if err != nil {
			return "", err
		}
		b, err := part.Encode()
		require.NoError(t, err)
		part, err = DecodePart(b)
		require.NoError(t, err)
		parts = append(parts, part)
	}
	return Commit(d, root, manifestOf(at, block), parts)
}

func manifestOf(at train.Position, block int) Manifest {
	return Manifest{Version: ManifestVersion, Scenario: "test", Position: at, Seed: 7, Layout: Layout{1, 1, 1, 1, 1, 1},
		Model: json.RawMessage(`{"hidden_size": 8}`), Source: "name: test\n", BlockBytes: block}
}

// requireTensors reads every tensor whole and at a cut, and requires the values.
func requireTensors(t require.TestingT, dir string, tensors []wholeTensor) {
	s, err := OpenSharded(dir)
	require.NoError(t, err)
	defer s.Close()
	for _, w := range tensors {
		spec := &nn.Spec{Name: w.name, Shape: w.shape, Shard: nn.Unsharded}
		got := make([]float32, len(w.data))
		require.NoError(t, Read(s, w.name, spec, 0, got))
		require.Equal(t, w.data, got, w.name)
	}
}

// TestReadAtAnyLayout (I26): what one layout has saved, any other reads: the same bits, of every shard and range.
func TestReadAtAnyLayout(t *testing.T) {
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		var tensors []wholeTensor
		var saved []layoutOf
		for i := range rapid.IntRange(1, 4).Draw(t, "tensors") {
			shape := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 4, 6, 12}), 1, 3).Draw(t, "shape")
			tensors = append(tensors, newWhole(fmt.Sprintf("t.%d", i), i, shape...))
			saved = append(saved, drawLayout(t, shape, "saved"))
		}
		block := 8 * rapid.IntRange(1, 8).Draw(t, "block")
		path, err := saveTensors(t, hasty{}, dir, train.Position{Iteration: run}, block, tensors, saved)
		require.NoError(t, err)
		s, err := OpenSharded(path)
		require.NoError(t, err)
		defer s.Close()
		for _, w := range tensors {
			read := drawLayout(t, w.shape, "read")
			for index := range read.parts {
				spec := &nn.Spec{Name: w.name, Shape: w.shape, Shard: nn.Shard{Dim: read.dim, Parts: read.parts, Index: index}}
				want, from := shardOf(w.shape, w.data, spec.Shard), 0
				for _, to := range read.ranges {
					got := make([]float32, to-from)
					require.NoError(t, Read(s, w.name, spec, from, got))
					require.Equal(t, want[from:to], got)
					wide := make([]float64, to-from)
					require.NoError(t, Read(s, w.name, spec, from, wide))
					for i := range wide {
						require.Equal(t, float64(want[from+i]), wide[i])
					}
					from = to
				}
			}
			from := rapid.IntRange(0, len(w.data)-1).Draw(t, "from")
			piece := make([]byte, 4*rapid.IntRange(0, len(w.data)-from).Draw(t, "n"))
			require.NoError(t, s.ReadAt(w.name, piece, int64(4*from)))
			require.Equal(t, tensor.Bytes(w.data)[4*from:4*from+len(piece)], piece)
			info, ok := s.Info(w.name)
			require.True(t, ok)
			require.Equal(t, Info{Name: w.name, DType: "F32", Shape: w.shape, To: int64(4 * len(w.data))}, info)
			all, err := s.Float64s(w.name)
			require.NoError(t, err)
			require.Equal(t, float64(w.data[len(w.data)-1]), all[len(all)-1])
		}
	})
}

// A rank reads what it needs and little more: the blocks in which its rows lie.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	w := newWhole("w", 1, 64, 32) // 8192 bytes, 128 a row
	dir, err := saveTensors(t, disk.OS{}, t.TempDir(), train.Position{Iteration: 1}, 256, []wholeTensor{w}, []layoutOf{{0, 2, []int{500, 1024}}})
	require.NoError(t, err)
	s, err := OpenSharded(dir)
	require.NoError(t, err)
	defer s.Close()
	quarter := &nn.Spec{Name: "w", Shape: w.shape, Shard: nn.Shard{Dim: 0, Parts: 4, Index: 1}}
	got := make([]float32, 512)
	require.NoError(t, Read(s, "w", quarter, 0, got))
	require.Equal(t, shardOf(w.shape, w.data, quarter.Shard), got)
	// Rows 16 to 31 are elements 512 to 1023 of shard 0, all in its second piece, which begins at 500: 12 elements (48
	// bytes) into a piece of 2096 bytes, whose 9 blocks are all touched. Nothing else is.
	require.EqualValues(t, 2096, s.BytesRead())
	half := make([]float32, 8)
	require.NoError(t, Read(s, "w", quarter, 100, half)) // elements 612 to 619: bytes 448 to 479 of the piece, one block
	require.EqualValues(t, 2096+256, s.BytesRead())
	require.Equal(t, got[100:108], half)
}

// Moments and weights of fp64 runs keep every bit, NaN payloads included.
func TestReadFloat64(t *testing.T) {
	spec := &nn.Spec{Name: "x", Shape: []int{3}, Shard: nn.Unsharded}
	x := []float64{math.Pi, math.Float64frombits(0x7ff8000000000123), math.Copysign(0, -1)}
	root := t.TempDir()
	at := train.Position{Iteration: 3, Samples: 24, Updates: 2}
	part, err := WriteRank(disk.OS{}, root, 0, at, []Held{HeldOf("x", spec, 0, x)})
	require.NoError(t, err)
	dir, err := Commit(disk.OS{}, root, manifestOf(at, BlockBytes), []*Part{part})
	require.NoError(t, err)
	s, err := OpenSharded(dir)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, at, s.Manifest.Position)
	got := make([]float64, 3)
	require.NoError(t, Read(s, "x", spec, 0, got))
	for i := range x {
		require.Equal(t, math.Float64bits(x[i]), math.Float64bits(got[i]))
	}
	narrow := make([]float32, 1)
	require.NoError(t, Read(s, "x", spec, 0, narrow))
	require.Equal(t, float32(math.Pi), narrow[0])
}
