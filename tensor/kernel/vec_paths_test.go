package kernel

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// canonical is the bits of x with one NaN for all.
func canonical(x []float32) []uint32 {
	y := make([]uint32, len(x))
	for i, v := range x {
		y[i] = math.Float32bits(v)
		if v != v {
			y[i] = 0x7fc00000
		}
	}
	return y
}

// onPath runs f with path p active.
func onPath(p Path, f func()) {
	defer Use(Use(p))
	f()
}

// specials are values at which instructions differ if anything does.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -3e-40, 0x1p-126, 1e-30, -1e-20, 1, -1, 88.7228, 88.73,
	-87.33654, -87.33655, -88, -104, 1e4, -1e9, 3e38, -3e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
}

// draw is element i of stream s: normal values about the size of activations.
func draw(s, i int) float32 {
	w := Philox([2]uint32{uint32(s), 5}, [4]uint32{uint32(i)})
	return float32(3 * NormalFromUniform((float64(w[0])+0.5)/(1<<32)))
}

// input is stream s of n elements; special makes a third of them special values.
func input(n, seed, s int, special bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = draw(16*seed+s, i)
		pick := Philox([2]uint32{uint32(seed), uint32(s)}, [4]uint32{uint32(i)})
		if special && pick[0]%3 == 0 {
			x[i] = specials[pick[1]%uint32(len(specials))]
		}
	}
	return x
}

// runOn runs r on path p with the inputs of a seed and gives the bits of what it wrote.
func runOn(t *testing.T, r runner, p Path, in [3][]float32) (bits [][]uint32) {
	t.Helper()
	onPath(p, func() {
		var m rooms
		for _, x := range r.run(&m, m.of(in[0]), m.of(in[1]), m.of(in[2])) {
			bits = append(bits, canonical(x))
		}
		require.True(t, m.intact(), "%s on %s wrote outside its slices, n=%d", r.name, p, len(in[0]))
	})
	return bits
}

func requirePathsAgree(t *testing.T, r runner, in [3][]float32) {
	t.Helper()
	want := runOn(t, r, Portable, in)
	for p := Portable + 1; p <= Best(); p++ {
		got := runOn(t, r, p, in)
		same := slices.EqualFunc(want, got, func(x, y []uint32) bool { return slices.Equal(x, y) })
		if !same {
			require.Equal(t, want, got, "%s on %s, n=%d", r.name, p, len(in[0]))
		}
	}
}

// TestPathsAgree is the contract of the package: every path gives the bits of the portable form.
func TestPathsAgree(t *testing.T) {
	lengths := []int{2048, 4096, 4099, 8209}
	for n := range 71 {
		lengths = append(lengths, n)
	}
	for _, r := range runners {
		t.Run(r.name, func(t *testing.T) {
			for _, n := range lengths {
				for seed := range 3 {
					special := seed == 1
					requirePathsAgree(t, r, [3][]float32{
						input(n, seed, 0, special), input(n, seed, 1, special), input(n, seed, 2, special),
					})
				}
			}
		})
	}
}

// TestPathsAgreeOnAnyBits draws elements as raw bits: NaN with payloads, subnormals, all exponents.
func TestPathsAgreeOnAnyBits(t *testing.T) {
	for _, r := range runners {
		rapid.Check(t, func(rt *rapid.T) {
			n := rapid.IntRange(0, 50).Draw(rt, "n")
			var in [3][]float32
			for i := range in {
				for _, b := range rapid.SliceOfN(rapid.Uint32(), n, n).Draw(rt, "bits") {
					in[i] = append(in[i], math.Float32frombits(b))
				}
			}
			requirePathsAgree(t, r, in)
		})
	}
}

// TestExpPathsAgreeWidely walks over all float32 in steps of a prime.
func TestExpPathsAgreeWidely(t *testing.T) {
	const n, step = 1 << 14, 16001
	x := make([]float32, n)
	for base := uint64(0); base < 1<<32; base += n * step {
		for i := range x {
			x[i] = math.Float32frombits(uint32(base) + uint32(i*step))
		}
		requirePathsAgree(t, runners[5], [3][]float32{x, x, x})
	}
	require.Equal(t, "ExpInto", runners[5].name)
}

// TestGoldenBits pins the definition itself: it fails on a CPU or with a compiler that gives other bits, and on any
// change to the order or fusing of operations, which would break the replay of recorded runs.
func TestGoldenBits(t *testing.T) {
	for _, r := range runners {
		h := fnv.New64a()
		for _, n := range []int{1, 16, 37, 1000, 4099} {
			in := [3][]float32{input(n, 7, 0, false), input(n, 7, 1, false), input(n, 7, 2, n == 37)}
			for _, bits := range runOn(t, r, Active(), in) {
				require.NoError(t, binary.Write(h, binary.LittleEndian, bits))
			}
		}
		assert.Equal(t, goldenBits[r.name], fmt.Sprintf("%016x", h.Sum64()), r.name)
	}
}
