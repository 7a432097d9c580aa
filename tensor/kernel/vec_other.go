//go:build !amd64

package kernel

// No vector path: each function says so, and its caller takes the portable form.

func vecAdd(dst, a, b []float32) bool                                      { return false }
func vecMul(dst, a, b []float32) bool                                      { return false }
func vecScale(x []float32, s float32) bool                                 { return false }
func vecAxpy(y []float32, a float32, x []float32) bool                     { return false }
func vecExp(dst, src []float32) bool                                       { return false }
func vecExpScaled(dst, src []float32, scale, shift float32) bool           { return false }
func vecRoPE(x1, x2, cos, sin []float32) bool                              { return false }
func vecRoPEGrad(x1, x2, cos, sin []float32) bool                          { return false }
func vecTranspose(dst, src []float32, rows, cols int) bool                 { return false }
func vecSum(acc *[Lanes]float32, x []float32) bool                         { return false }
func vecDot(acc *[Lanes]float32, x, y []float32) bool                      { return false }
func vecSumSquares(acc *[Lanes]float64, x []float32) bool                  { return false }
func vecMax(acc *[Lanes]float32, x []float32, scale float32) bool          { return false }
func vecSumExp(acc *[Lanes]float32, x []float32, max float32) bool         { return false }
func vecSoftmaxGrad(ds, p, dp []float32, scale, c float32) bool            { return false }
func vecCrossEntropyGrad(logits []float32, max, k float32) bool            { return false }
func vecRMSNorm(y, x, gain []float32, inv float32) bool                    { return false }
func vecRMSNormGrad(dx, dgain, dy, x, gain []float32, inv, c float32) bool { return false }
func vecSwiGLU(out, gate, up []float32) bool                               { return false }
func vecSwiGLUGrad(dgate, dup, dout, gate, up []float32) bool              { return false }
func vecSquaredReLU(out, x []float32) bool                                 { return false }
func vecSquaredReLUGrad(dx, dout, x []float32) bool                        { return false }
func vecAdamW(p, g, m, v []float32, c *adamwConst[float32]) bool           { return false }

func vecSoftmax(acc *[Lanes]float32, dst, src []float32, scale, max float32) bool { return false }

func vecRMSNormGradSum(acc *[Lanes]float32, dy, x, gain []float32, inv float32) bool { return false }
