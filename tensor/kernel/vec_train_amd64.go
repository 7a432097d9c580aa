package kernel

func vecSoftmaxGrad(ds, p, dp []float32, scale, c float32) bool {
	for i := 0; i < len(ds) && active != Portable; i += vecChunk {
		n := min(len(ds)-i, vecChunk)
		if active == AVX512 {
			vecSoftmaxGradAVX512(&ds[i], &p[i], &dp[i], scale, c, n)
		} else {
			vecSoftmaxGradAVX2(&ds[i], &p[i], &dp[i], scale, c, n)
		}
	}
	return active != Portable
}

func vecCrossEntropyGrad(logits []float32, max, k float32) bool {
	for i := 0; i < len(logits) && active != Portable; i += vecChunk {
		n := min(len(logits)-i, vecChunk)
		if active == AVX512 {
			vecCrossEntropyGradAVX512(&logits[i], max, k, n)
		} else {
			vecCrossEntropyGradAVX2(&logits[i], max, k, n)
		}
	}
	return active != Portable
}

func vecRMSNorm(y, x, gain []float32, inv float32) bool {
	for i := 0; i < len(y) && active != Portable; i += vecChunk {
		n := min(len(y)-i, vecChunk)
		if active == AVX512 {
			vecRMSNormAVX512(&y[i], &x[i], &gain[i], inv, n)
		} else {
			vecRMSNormAVX2(&y[i], &x[i], &gain[i], inv, n)
		}
	}
	return active != Portable
}

func vecRMSNormGrad(dx, dgain, dy, x, gain []float32, inv, c float32) bool {
	for i := 0; i < len(dx) && active != Portable; i += vecChunk {
		n := min(len(dx)-i, vecChunk)
		if active == AVX512 {
			vecRMSNormGradAVX512(&dx[i], &dgain[i], &dy[i], &x[i], &gain[i], inv, c, n)
		} else {
			vecRMSNormGradAVX2(&dx[i], &dgain[i], &dy[i], &x[i], &gain[i], inv, c, n)
		}
	}
	return active != Portable
}

func vecSwiGLU(out, gate, up []float32) bool {
	for i := 0; i < len(out) && active != Portable; i += vecChunk {
		n := min(len(out)-i, vecChunk)
		if active == AVX512 {
			vecSwiGLUAVX512(&out[i], &gate[i], &up[i], n)
		} else {
			vecSwiGLUAVX2(&out[i], &gate[i], &up[i], n)
		}
	}
	return active != Portable
}

func vecSwiGLUGrad(dgate, dup, dout, gate, up []float32) bool {
	for i := 0; i < len(dgate) && active != Portable; i += vecChunk {
		n := min(len(dgate)-i, vecChunk)
		if active == AVX512 {
			vecSwiGLUGradAVX512(&dgate[i], &dup[i], &dout[i], &gate[i], &up[i], n)
		} else {
			vecSwiGLUGradAVX2(&dgate[i], &dup[i], &dout[i], &gate[i], &up[i], n)
		}
	}
	return active != Portable
}

func vecSquaredReLU(out, x []float32) bool {
	for i := 0; i < len(out) && active != Portable; i += vecChunk {
		n := min(len(out)-i, vecChunk)
		if active == AVX512 {
			vecSquaredReLUAVX512(&out[i], &x[i], n)
		} else {
			vecSquaredReLUAVX2(&out[i], &x[i], n)
		}
	}
	return active != Portable
}

func vecSquaredReLUGrad(dx, dout, x []float32) bool {
	for i := 0; i < len(dx) && active != Portable; i += vecChunk {
		n := min(len(dx)-i, vecChunk)
		if active == AVX512 {
			vecSquaredReLUGradAVX512(&dx[i], &dout[i], &x[i], n)
		} else {
			vecSquaredReLUGradAVX2(&dx[i], &dout[i], &x[i], n)
		}
	}
	return active != Portable
}

func vecAdamW(p, g, m, v []float32, c *adamwConst[float32]) bool {
	for i := 0; i < len(p) && active != Portable; i += adamwChunk {
		n := min(len(p)-i, adamwChunk)
		if active == AVX512 {
			vecAdamWAVX512(&p[i], &g[i], &m[i], &v[i], &c.gradScale, n)
		} else {
			vecAdamWAVX2(&p[i], &g[i], &m[i], &v[i], &c.gradScale, n)
		}
	}
	return active != Portable
}
