package kernel

//go:generate go run ./asm/vec

// Each function below runs one kernel on the active path and says whether there was one; if not, its caller takes
// the portable form. Slices have equal lengths, which the callers check.

const (
	// vecChunk is the most elements of one assembly call. The runtime cannot interrupt one, so it should stay
	// below 20 µs even where memory is slow. It is a multiple of Lanes, so that lanes stay in place.
	vecChunk = 4096
	// adamwChunk is smaller because AdamW moves 28 bytes an element.
	adamwChunk = 2048
	// transposeRows is the most rows of one call; a row is a cache line read and a line written.
	transposeRows = 256
)

func vecAdd(dst, a, b []float32) bool {
	for i := 0; i < len(dst) && active != Portable; i += vecChunk {
		n := min(len(dst)-i, vecChunk)
		if active == AVX512 {
			vecAddAVX512(&dst[i], &a[i], &b[i], n)
		} else {
			vecAddAVX2(&dst[i], &a[i], &b[i], n)
		}
	}
	return active != Portable
}

func vecMul(dst, a, b []float32) bool {
	for i := 0; i < len(dst) && active != Portable; i += vecChunk {
		n := min(len(dst)-i, vecChunk)
		if active == AVX512 {
			vecMulAVX512(&dst[i], &a[i], &b[i], n)
		} else {
			vecMulAVX2(&dst[i], &a[i], &b[i], n)
		}
	}
	return active != Portable
}

func vecScale(x []float32, s float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecScaleAVX512(&x[i], s, n)
		} else {
			vecScaleAVX2(&x[i], s, n)
		}
	}
	return active != Portable
}

func vecAxpy(y []float32, a float32, x []float32) bool {
	for i := 0; i < len(y) && active != Portable; i += vecChunk {
		n := min(len(y)-i, vecChunk)
		if active == AVX512 {
			vecAxpyAVX512(&y[i], a, &x[i], n)
		} else {
			vecAxpyAVX2(&y[i], a, &x[i], n)
		}
	}
	return active != Portable
}

func vecExp(dst, src []float32) bool {
	for i := 0; i < len(dst) && active != Portable; i += vecChunk {
		n := min(len(dst)-i, vecChunk)
		if active == AVX512 {
			vecExpAVX512(&dst[i], &src[i], n)
		} else {
			vecExpAVX2(&dst[i], &src[i], n)
		}
	}
	return active != Portable
}

func vecExpScaled(dst, src []float32, scale, shift float32) bool {
	for i := 0; i < len(dst) && active != Portable; i += vecChunk {
		n := min(len(dst)-i, vecChunk)
		if active == AVX512 {
			vecExpScaledAVX512(&dst[i], &src[i], scale, shift, n)
		} else {
			vecExpScaledAVX2(&dst[i], &src[i], scale, shift, n)
		}
	}
	return active != Portable
}

func vecRoPE(x1, x2, cos, sin []float32) bool {
	for i := 0; i < len(x1) && active != Portable; i += vecChunk {
		n := min(len(x1)-i, vecChunk)
		if active == AVX512 {
			vecRoPEAVX512(&x1[i], &x2[i], &cos[i], &sin[i], n)
		} else {
			vecRoPEAVX2(&x1[i], &x2[i], &cos[i], &sin[i], n)
		}
	}
	return active != Portable
}

func vecRoPEGrad(x1, x2, cos, sin []float32) bool {
	for i := 0; i < len(x1) && active != Portable; i += vecChunk {
		n := min(len(x1)-i, vecChunk)
		if active == AVX512 {
			vecRoPEGradAVX512(&x1[i], &x2[i], &cos[i], &sin[i], n)
		} else {
			vecRoPEGradAVX2(&x1[i], &x2[i], &cos[i], &sin[i], n)
		}
	}
	return active != Portable
}

// vecTranspose moves strips of 16 columns and leaves what is over to the portable form's plain loops.
func vecTranspose(dst, src []float32, rows, cols int) bool {
	if active == Portable {
		return false
	}
	fullRows, fullCols := rows&^15, cols&^15
	for r := 0; r < fullRows; r += transposeRows {
		n := min(fullRows-r, transposeRows)
		for c := 0; c < fullCols; c += 16 {
			vecTransposeAVX2(&dst[c*rows+r], &src[r*cols+c], rows, cols, n)
		}
	}
	for c := range cols {
		from := fullRows
		if c >= fullCols {
			from = 0
		}
		for r := from; r < rows; r++ {
			dst[c*rows+r] = src[r*cols+c]
		}
	}
	return true
}
