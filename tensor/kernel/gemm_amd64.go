package kernel

import "unsafe"

// avx2Engine and avx512Engine run the generated tiles. The sizes of blocks come from measurements: a strip of A
// (mr × kc) lives in 32 or 48 KiB of first-level cache, a packed block of B in the second level, which has 256 KiB or
// more on CPUs with AVX2 and 1 MiB or more on those with AVX-512.
var (
	avx2Engine = engine[float32]{mr: 6, nr: 16, kc: 512, panels: 64 << 10, aWidth: 8, direct: 12,
		rowTile:   func(t *tile[float32]) { tileRowAVX2((*byte)(unsafe.Pointer(t))) },
		colTile:   func(t *tile[float32]) { tileKAVX2((*byte)(unsafe.Pointer(t))) },
		copyRows:  copyRowsAVX2,
		transpose: transposeAVX2, spare: &spare32}
	avx512Engine = engine[float32]{mr: 14, nr: 32, kc: 512, panels: 192 << 10, aWidth: 16, direct: 28,
		rowTile:   func(t *tile[float32]) { tileRowAVX512((*byte)(unsafe.Pointer(t))) },
		colTile:   func(t *tile[float32]) { tileKAVX512((*byte)(unsafe.Pointer(t))) },
		copyRows:  copyRowsAVX512,
		transpose: transposeAVX2, spare: &spare32}
)

// copyRowsAVX2 is copyRows for widths 8 and 16, cols not zero.
func copyRowsAVX2(dst []float32, ldd, width int, src []float32, lds, rows, cols int) {
	_, _ = dst[(rows-1)*ldd+width-1], src[(rows-1)*lds+cols-1]
	if width == 8 {
		packRows1AVX2(&dst[0], ldd, &src[0], lds, rows, cols)
		return
	}
	packRows2AVX2(&dst[0], ldd, &src[0], lds, rows, cols)
}

// copyRowsAVX512 is copyRows for widths 16 and 32, cols not zero.
func copyRowsAVX512(dst []float32, ldd, width int, src []float32, lds, rows, cols int) {
	_, _ = dst[(rows-1)*ldd+width-1], src[(rows-1)*lds+cols-1]
	if width == 16 {
		packRows1AVX512(&dst[0], ldd, &src[0], lds, rows, cols)
		return
	}
	packRows2AVX512(&dst[0], ldd, &src[0], lds, rows, cols)
}

// transposeChunk is how many k are transposed before the next 8 columns: the lines of the panel that 8 columns fill by
// half or quarter are then still in the first-level cache.
const transposeChunk = 128

// transposeAVX2 is transpose with whole 8×8 blocks in assembly.
func transposeAVX2(dst []float32, ldd, width int, src []float32, lds, rows, cols int) {
	rows8, cols8 := rows&^7, cols&^7
	for k := 0; k < rows8; k += transposeChunk {
		n := min(transposeChunk, rows8-k)
		for j := 0; j < cols8; j += 8 {
			_, _ = dst[(k+n-1)*ldd+j+7], src[(j+7)*lds+k+n-1]
			packTransAVX2(&dst[k*ldd+j], ldd, &src[j*lds+k], lds, n/8)
		}
	}
	if rows8 < rows {
		transpose(dst[rows8*ldd:], ldd, cols8, src[rows8:], lds, rows-rows8, cols8)
	}
	if cols8 < width {
		transpose(dst[cols8:], ldd, width-cols8, src[min(cols8*lds, len(src)):], lds, rows, cols-cols8)
	}
}
