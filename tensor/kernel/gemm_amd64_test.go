package kernel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestTileOffsets holds the struct to the offsets in asm/gemm/tile.go.
func TestTileOffsets(t *testing.T) {
	var x tile[float32]
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96}, []uintptr{
		unsafe.Offsetof(x.a), unsafe.Offsetof(x.b), unsafe.Offsetof(x.c), unsafe.Offsetof(x.next),
		unsafe.Offsetof(x.lda), unsafe.Offsetof(x.ldb), unsafe.Offsetof(x.ldc),
		unsafe.Offsetof(x.k), unsafe.Offsetof(x.rows), unsafe.Offsetof(x.cols), unsafe.Offsetof(x.load), unsafe.Offsetof(x.far), unsafe.Offsetof(x.farEnd),
	})
}

// packCase is a random matrix and room for its packed form.
type packCase struct {
	src             []float32
	lds, rows, cols int
}

func newPackCase(r *rand.Rand, rows, cols int) packCase {
	c := packCase{lds: cols + r.IntN(5), rows: rows, cols: cols}
	c.src = make([]float32, matLen(rows, cols, c.lds))
	for i := range c.src {
		c.src[i] = r.Float32()
	}
	return c
}

// packed is what f leaves in room for n elements, and the guards behind.
func packed(f func(dst []float32), n int) []float32 {
	dst := slices.Repeat([]float32{guard}, n+guardsMin)
	f(dst[:n])
	return dst
}

// assemblyEngines are those this CPU has.
func assemblyEngines() []*engine[float32] { return engines32[AVX2 : max(Best(), AVX2)+1] }

// TestPackingIsThePortablePacking: assembly copies and transposes like the Go functions, and writes not one element more.
func TestPackingIsThePortablePacking(t *testing.T) {
	r := newRand(5)
	for _, e := range assemblyEngines() {
		for range 400 {
			cols := 1 + r.IntN(e.nr)
			c := newPackCase(r, 1+r.IntN(40), cols)
			require.Equal(t,
				packed(func(dst []float32) { panel[float32](e.nr)(dst, c.src, c.lds, c.rows, cols) }, c.rows*e.nr),
				packed(func(dst []float32) { e.panel(dst, c.src, c.lds, c.rows, cols) }, c.rows*e.nr),
				"panel of %d×%d", c.rows, cols)
			c = newPackCase(r, cols, 1+r.IntN(300))
			requireTransposed(t, c, e.nr, packed(func(dst []float32) { e.transpose(dst, e.nr, c.src, c.lds, c.cols, cols) }, c.cols*e.nr))
		}
	}
}

// requireTransposed wants c transposed in the first columns of a panel nr wide, and guards from the next multiple of 8 on.
func requireTransposed(t *testing.T, c packCase, nr int, got []float32) {
	t.Helper()
	for i, x := range got {
		k, j := i/nr, i%nr
		switch {
		case k < c.cols && j < c.rows:
			require.Equal(t, c.src[j*c.lds+k], x, "transpose %d×%d, row %d, column %d", c.rows, c.cols, k, j)
		case k >= c.cols || j >= roundUp(c.rows, 8):
			require.EqualValues(t, guard, x, "transpose %d×%d wrote row %d, column %d", c.rows, c.cols, k, j)
		}
	}
}

// TestUnpackTransposesATile, and writes only what belongs to the tile.
func TestUnpackTransposesATile(t *testing.T) {
	r := newRand(7)
	tile := newPackCase(r, 16, 32)
	tile.lds = 32
	for range 400 {
		rows, cols := 1+r.IntN(32), 1+r.IntN(14)
		ldd := cols + r.IntN(5)
		got := packed(func(dst []float32) { unpackAVX2(dst, ldd, tile.src, tile.lds, rows, cols) }, matLen(rows, cols, ldd))
		for i, x := range got {
			if q, c := i/ldd, i%ldd; q < rows && c < cols {
				require.Equal(t, tile.src[c*tile.lds+q], x, "%d×%d", rows, cols)
			} else {
				require.EqualValues(t, guard, x, "%d×%d", rows, cols)
			}
		}
	}
}

// TestGroupsArePackedStrips: strip s of a group has columns s·mr … of the source, a vector for each row, filled
// up with zeros.
func TestGroupsArePackedStrips(t *testing.T) {
	r := newRand(6)
	for _, e := range assemblyEngines() {
		for range 200 {
			strips, cols, rows := 1+r.IntN(e.strips), 1+r.IntN(e.mr), 1+r.IntN(150)
			c := newPackCase(r, rows, (strips-1)*e.mr+cols)
			distance := rows * e.aStep
			want := make([]float32, strips*distance)
			for k := range rows {
				for i, x := range c.src[k*c.lds : k*c.lds+c.cols] {
					want[i/e.mr*distance+k*e.aStep+i%e.mr] = x
				}
			}
			got := packed(func(dst []float32) { e.group(dst, distance, c.src, c.lds, rows, strips, cols) }, len(want))
			require.Equal(t, want, got[:len(want)])
			require.Equal(t, slices.Repeat([]float32{guard}, guardsMin), got[len(want):])
		}
	}
}

// TestTurnedProducts: turned round, products of every height and width give the same bits.
func TestTurnedProducts(t *testing.T) {
	for _, e := range assemblyEngines() {
		if e.unpack == nil {
			continue
		}
		for i := range 3 * 34 {
			m, n, k := 1+i%34, 1+(7*i)%31, []int{9, 40, 530}[i%3]
			g := newGemmCase(gemmShape{tr: NT, m: m, n: n, k: k, padA: i % 4, padB: i % 3, padC: i % 5, acc: i%2 == 0}, unitDraw[float32](newRand(uint64(i))))
			room := slices.Clone(g.room)
			p := product[float32]{tr: NT, m: m, n: n, k: k, a: g.a, lda: g.lda, b: g.b, ldb: g.ldb,
				c: room[guardsMin : len(room)-guardsMin], ldc: g.ldc, accumulate: g.acc}
			p.turn()
			e.part(p)
			g.requireSame(t, g.run(), room, "turned")
		}
	}
}
