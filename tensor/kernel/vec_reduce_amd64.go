package kernel

// The reductions hand their lanes from one chunk to the next.

func vecSum(acc *[Lanes]float32, x []float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecSumAVX512(acc, &x[i], n)
		} else {
			vecSumAVX2(acc, &x[i], n)
		}
	}
	return active != Portable
}

func vecDot(acc *[Lanes]float32, x, y []float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecDotAVX512(acc, &x[i], &y[i], n)
		} else {
			vecDotAVX2(acc, &x[i], &y[i], n)
		}
	}
	return active != Portable
}

func vecSumSquares(acc *[Lanes]float64, x []float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecSumSquaresAVX512(acc, &x[i], n)
		} else {
			vecSumSquaresAVX2(acc, &x[i], n)
		}
	}
	return active != Portable
}

func vecMax(acc *[Lanes]float32, x []float32, scale float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecMaxAVX512(acc, &x[i], scale, n)
		} else {
			vecMaxAVX2(acc, &x[i], scale, n)
		}
	}
	return active != Portable
}

func vecSumExp(acc *[Lanes]float32, x []float32, max float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecSumExpAVX512(acc, &x[i], max, n)
		} else {
			vecSumExpAVX2(acc, &x[i], max, n)
		}
	}
	return active != Portable
}

func vecSoftmax(acc *[Lanes]float32, dst, src []float32, scale, max float32) bool {
	for i := 0; i < len(dst) && active != Portable; i += vecChunk {
		n := min(len(dst)-i, vecChunk)
		if active == AVX512 {
			vecSoftmaxAVX512(acc, &dst[i], &src[i], scale, max, n)
		} else {
			vecSoftmaxAVX2(acc, &dst[i], &src[i], scale, max, n)
		}
	}
	return active != Portable
}

func vecRMSNormGradSum(acc *[Lanes]float32, dy, x, gain []float32, inv float32) bool {
	for i := 0; i < len(x) && active != Portable; i += vecChunk {
		n := min(len(x)-i, vecChunk)
		if active == AVX512 {
			vecRMSNormGradSumAVX512(acc, &dy[i], &x[i], &gain[i], inv, n)
		} else {
			vecRMSNormGradSumAVX2(acc, &dy[i], &x[i], &gain[i], inv, n)
		}
	}
	return active != Portable
}
