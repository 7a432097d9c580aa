package kernel

import "unsafe"

// avx2Engine and avx512Engine run the generated tiles. The sizes of blocks come from measurements: a strip of A
// (mr × kc) lives in 32 or 48 KiB of first-level cache, a packed block of B in the second level, which has 256 KiB or
// more on CPUs with AVX2 and 1 MiB or more on those with AVX-512.
var (
	avx2Engine = engine[float32]{mr: 6, nr: 16, kc: 512, kcTN: 320, panels: 112 << 10, nearRows: 12, strips: 16, aStep: 8,
		rowTile: func(t *tile[float32]) { tileRowAVX2((*byte)(unsafe.Pointer(t))) },
		colTile: func(t *tile[float32]) { tileColAVX2((*byte)(unsafe.Pointer(t))) },
		panel:   panelAVX2, group: groupAVX2, transpose: transposeAVX2, spare: &spare32}
	avx512Engine = engine[float32]{mr: 14, nr: 32, kc: 512, kcTN: 320, panels: 192 << 10, nearRows: 28, strips: 16, aStep: 16,
		rowTile: func(t *tile[float32]) { tileRowAVX512((*byte)(unsafe.Pointer(t))) },
		colTile: func(t *tile[float32]) { tileColAVX512((*byte)(unsafe.Pointer(t))) },
		panel:   panelAVX512, group: groupAVX512, transpose: transposeAVX2, unpack: unpackAVX2, spare: &spare32}
)

func panelAVX2(dst, src []float32, lds, rows, cols int) {
	_, _ = dst[rows*16-1], src[(rows-1)*lds+cols-1]
	packRowsAVX2(&dst[0], &src[0], lds, rows, cols)
}

func panelAVX512(dst, src []float32, lds, rows, cols int) {
	_, _ = dst[rows*32-1], src[(rows-1)*lds+cols-1]
	packRowsAVX512(&dst[0], &src[0], lds, rows, cols)
}

// groupRows is how many rows one call packs into strips: from memory that takes up to about 10 µs, and Go cannot
// preempt assembly.
const groupRows = 64

func groupAVX2(dst []float32, distance int, src []float32, lds, rows, strips, cols int) {
	_, _ = dst[(strips-1)*distance+rows*8-1], src[(rows-1)*lds+(strips-1)*6+cols-1]
	for r := 0; r < rows; r += groupRows {
		packStripsAVX2(&dst[r*8], distance, &src[r*lds], lds, min(groupRows, rows-r), strips, cols)
	}
}

func groupAVX512(dst []float32, distance int, src []float32, lds, rows, strips, cols int) {
	_, _ = dst[(strips-1)*distance+rows*16-1], src[(rows-1)*lds+(strips-1)*14+cols-1]
	for r := 0; r < rows; r += groupRows {
		packStripsAVX512(&dst[r*16], distance, &src[r*lds], lds, min(groupRows, rows-r), strips, cols)
	}
}

// transposeChunk is how many k are transposed before the next 8 columns: the lines of the panel that 8 columns fill by
// half or quarter are then still in the first-level cache.
const transposeChunk = 128

// transposeAVX2 is transpose with 8×8 blocks in assembly. Columns from the next multiple of 8 on are left as they are:
// tiles compute with them, but do not store what comes out.
func transposeAVX2(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	rows8, cols8 := rows&^7, cols&^7
	for k := 0; k < rows8; k += transposeChunk {
		n := min(transposeChunk, rows8-k)
		_ = dst[(k+n-1)*ldd+roundUp(cols, 8)-1]
		for j := 0; j < cols8; j += 8 {
			_ = src[(j+7)*lds+k+n-1]
			packTransAVX2(&dst[k*ldd+j], ldd, &src[j*lds+k], lds, n/8)
		}
		if cols8 < cols {
			var rest [8 * transposeChunk]float32
			for j := cols8; j < cols; j++ {
				copy(rest[(j-cols8)*transposeChunk:], src[j*lds+k:j*lds+k+n])
			}
			packTransAVX2(&dst[k*ldd+cols8], ldd, &rest[0], transposeChunk, n/8)
		}
	}
	for j := range cols {
		for k := rows8; k < rows; k++ {
			dst[k*ldd+j] = src[j*lds+k]
		}
	}
}

// unpackAVX2 is unpack.
func unpackAVX2(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	_, _ = dst[(rows-1)*ldd+cols-1], src[(roundUp(cols, 8)-1)*lds+roundUp(rows, 4)-1]
	for r := 0; r < cols; r += 8 {
		unpackTransAVX2(&dst[r], ldd, &src[r*lds], lds, rows, min(8, cols-r))
	}
}
