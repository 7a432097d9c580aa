package kernel

import (
	"testing"
)

// bench runs f on each path with n elements and bytes moved per element; elements per second are reported too.
func bench(b *testing.B, n, bytes int, f func(x, y, z, w, u []float32)) {
	for p := Portable; p <= Best(); p++ {
		b.Run(p.String(), func(b *testing.B) {
			defer Use(Use(p))
			var s [5][]float32
			for i := range s {
				s[i] = make([]float32, n)
				for j := range s[i] {
					s[i][j] = draw(i, j%4096)
				}
			}
			b.SetBytes(int64(n * bytes))
			b.ResetTimer()
			for b.Loop() {
				f(s[0], s[1], s[2], s[3], s[4])
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gelem/s")
		})
	}
}

// Rows of 2048 elements stay in the first-level cache; AdamW is measured from memory.
const benchRow = 2048

func BenchmarkExpInto(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { ExpInto(y, x) })
}

func BenchmarkExpScaled(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { ExpScaled(y, x, 0.3, 1) })
}

func BenchmarkSum(b *testing.B) {
	bench(b, benchRow, 4, func(x, y, z, w, u []float32) { Sum(x) })
}

func BenchmarkDot(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { Dot(x, y) })
}

func BenchmarkSumSquares(b *testing.B) {
	bench(b, benchRow, 4, func(x, y, z, w, u []float32) { SumSquares(x) })
}

func BenchmarkMax(b *testing.B) {
	bench(b, benchRow, 4, func(x, y, z, w, u []float32) { Max(x) })
}

func BenchmarkMaxIndex(b *testing.B) {
	bench(b, benchRow, 4, func(x, y, z, w, u []float32) { MaxIndex(x) })
}

func BenchmarkAdd(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { Add(z, x, y) })
}

func BenchmarkAddInto(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { AddInto(z, x) })
}

func BenchmarkMul(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { Mul(z, x, y) })
}

func BenchmarkScale(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { Scale(x, 1) })
}

func BenchmarkAxpy(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { Axpy(z, 1e-9, x) })
}

func BenchmarkRMSNorm(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { RMSNorm(z, x, y, 1e-5) })
}

func BenchmarkRMSNormGrad(b *testing.B) {
	bench(b, benchRow, 20, func(x, y, z, w, u []float32) { RMSNormGrad(w, u, z, x, y, 0.3) })
}

func BenchmarkSwiGLU(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { SwiGLU(z, x, y) })
}

func BenchmarkSwiGLUGrad(b *testing.B) {
	bench(b, benchRow, 20, func(x, y, z, w, u []float32) { SwiGLUGrad(w, u, z, x, y) })
}

func BenchmarkSquaredReLU(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { SquaredReLU(y, x) })
}

func BenchmarkSquaredReLUGrad(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { SquaredReLUGrad(z, x, y) })
}

func BenchmarkSoftmaxInto(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { SoftmaxInto(y, x, 0.5) })
}

// A row of attention over 256 keys, where the cost of the calls shows.
func BenchmarkSoftmaxInto256(b *testing.B) {
	bench(b, 256, 8, func(x, y, z, w, u []float32) { SoftmaxInto(y, x, 0.5) })
}

func BenchmarkSumExp(b *testing.B) {
	bench(b, benchRow, 4, func(x, y, z, w, u []float32) { SumExp(x, 3) })
}

func BenchmarkSoftmaxGradRow(b *testing.B) {
	bench(b, benchRow, 12, func(x, y, z, w, u []float32) { SoftmaxGradRow(z, x, y, 0.5) })
}

func BenchmarkCrossEntropyGrad(b *testing.B) {
	bench(b, benchRow, 8, func(x, y, z, w, u []float32) { CrossEntropyGrad(x, 0, 1, 0.5) })
}

// angles are the cosines and sines of a rotation of 64: other numbers would grow or fade to subnormals.
func angles() (cos, sin []float32) {
	for i := range 32 {
		s, c := SinCos(float64(i) / 9)
		cos, sin = append(cos, float32(c)), append(sin, float32(s))
	}
	return cos, sin
}

func BenchmarkRoPE64(b *testing.B) {
	cos, sin := angles()
	bench(b, 64, 12, func(x, y, z, w, u []float32) { RoPE(x, cos, sin) })
}

func BenchmarkRoPEGrad64(b *testing.B) {
	cos, sin := angles()
	bench(b, 64, 12, func(x, y, z, w, u []float32) { RoPEGrad(x, cos, sin) })
}

func BenchmarkAdamW(b *testing.B) {
	h := AdamWStep[float32]{LR: 1e-9, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, BiasCorr1: 0.1, BiasCorr2: 0.01, GradScale: 1}
	bench(b, 1<<22, 28, func(x, y, z, w, u []float32) { AdamW(x, y, z, u[:len(x)], h) })
}

func BenchmarkTranspose(b *testing.B) {
	bench(b, 1024*1024, 8, func(x, y, z, w, u []float32) { Transpose(y, x, 1024, 1024) })
}

func BenchmarkTransposeSmall(b *testing.B) {
	bench(b, 256*64, 8, func(x, y, z, w, u []float32) { Transpose(y, x, 256, 64) })
}
