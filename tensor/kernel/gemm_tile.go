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

// tile32 is the portable fp32 tile, up to 4×16.
func tile32(t *tile[float32]) {
	const mr, nr = 4, 16
	a, b := unsafe.Slice(t.a, t.k*mr), unsafe.Slice(t.b, t.k*nr)
	for i := range t.rows {
		c := rowC(t, i)
		var acc [nr]float32
		if t.load != 0 {
			copy(acc[:], c)
		}
		for k := range t.k {
			x, row := a[k*mr+i], (*[nr]float32)(b[k*nr:])
			for j, y := range row {
				acc[j] = fma32(x, y, acc[j])
			}
		}
		copy(c, acc[:])
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

// copyRows copies rows × cols values to a panel of the given width and fills up its rows with zeros.
func copyRows[T tensor.Float](dst []T, ldd, width int, src []T, lds, rows, cols int) {
	for r := range rows {
		to := dst[r*ldd : r*ldd+width]
		copy(to, src[r*lds:r*lds+cols])
		clear(to[cols:])
	}
}

// transpose writes dst[k·ldd+j] = src[j·lds+k] for j < cols and k < rows, and zeros for cols ≤ j < width.
func transpose[T tensor.Float](dst []T, ldd, width int, src []T, lds, rows, cols int) {
	for j := range width {
		if j >= cols {
			for k := range rows {
				dst[k*ldd+j] = 0
			}
			continue
		}
		for k, x := range src[j*lds : j*lds+rows] {
			dst[k*ldd+j] = x
		}
	}
}
