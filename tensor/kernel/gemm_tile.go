package kernel

import (
	"unsafe"

	"phalanx/tensor"
)

// Tiles and packing in Go. A is packed k-major with a full strip of rows, B to full panels, both filled up with
// zeros, so that the loops over k have no edges; only loading and storing C knows rows and cols.

// rowC is row i of the tile's C.
func rowC[T tensor.Float](t *tile[T], i int) []T {
	p := unsafe.Add(unsafe.Pointer(t.c), uintptr(i*t.ldc)*unsafe.Sizeof(*t.c))
	return unsafe.Slice((*T)(p), t.cols)
}

// tile32 is the portable fp32 tile, up to 4×16. The accumulators hold float32 values.
func tile32(t *tile[float32]) {
	const mr, nr = 4, 16
	a, b := unsafe.Slice(t.a, t.k*mr), unsafe.Slice(t.b, t.k*nr)
	var acc [mr][nr]float64
	if t.load != 0 {
		for i := range t.rows {
			for j, x := range rowC(t, i) {
				acc[i][j] = float64(x)
			}
		}
	}
	for k := range t.k {
		var row [nr]float64
		for j, y := range b[k*nr : k*nr+nr] {
			row[j] = float64(y)
		}
		for i, x := range a[k*mr : k*mr+t.rows] {
			fmaRow(&acc[i], float64(x), &row)
		}
	}
	for i := range t.rows {
		c := rowC(t, i)
		for j := range c {
			c[j] = float32(acc[i][j])
		}
	}
}

// tile64 is the fp64 tile, up to 2×4: more accumulators would not fit the registers that Go uses.
func tile64(t *tile[float64]) {
	const mr, nr = 2, 4
	var c [mr][nr]float64
	if t.load != 0 {
		for i := range t.rows {
			copy(c[i][:], rowC(t, i))
		}
	}
	c00, c01, c02, c03 := c[0][0], c[0][1], c[0][2], c[0][3]
	c10, c11, c12, c13 := c[1][0], c[1][1], c[1][2], c[1][3]
	a, b := unsafe.Slice(t.a, t.k*mr), unsafe.Slice(t.b, t.k*nr)
	for len(a) >= mr && len(b) >= nr {
		x, y := a[0], a[1]
		c00 = float64(x*b[0]) + c00
		c01 = float64(x*b[1]) + c01
		c02 = float64(x*b[2]) + c02
		c03 = float64(x*b[3]) + c03
		c10 = float64(y*b[0]) + c10
		c11 = float64(y*b[1]) + c11
		c12 = float64(y*b[2]) + c12
		c13 = float64(y*b[3]) + c13
		a, b = a[mr:], b[nr:]
	}
	c = [mr][nr]float64{{c00, c01, c02, c03}, {c10, c11, c12, c13}}
	for i := range t.rows {
		copy(rowC(t, i), c[i][:])
	}
}

// panel makes the function that copies rows × cols values to a panel of nr columns, filled up with zeros.
func panel[T tensor.Float](nr int) func(dst, src []T, lds, rows, cols int) {
	return func(dst, src []T, lds, rows, cols int) {
		for r := range rows {
			to := dst[r*nr : r*nr+nr]
			clear(to[copy(to, src[r*lds:r*lds+cols]):])
		}
	}
}

// group makes the function that copies rows to strips of mr columns; the last strip has cols columns.
func group[T tensor.Float](mr int) func(dst []T, distance int, src []T, lds, rows, strips, cols int) {
	copyStrip := panel[T](mr)
	return func(dst []T, distance int, src []T, lds, rows, strips, cols int) {
		for s := range strips - 1 {
			copyStrip(dst[s*distance:], src[s*mr:], lds, rows, mr)
		}
		copyStrip(dst[(strips-1)*distance:], src[(strips-1)*mr:], lds, rows, cols)
	}
}

// transpose writes dst[k·ldd+j] = src[j·lds+k] for j < cols and k < rows, and zeros for cols ≤ j < ldd.
func transpose[T tensor.Float](dst []T, ldd int, src []T, lds, rows, cols int) {
	for j := range cols {
		for k, x := range src[j*lds : j*lds+rows] {
			dst[k*ldd+j] = x
		}
	}
	for k := range rows {
		clear(dst[k*ldd+cols : (k+1)*ldd])
	}
}
