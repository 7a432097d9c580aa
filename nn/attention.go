package nn

import (
	"math"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Shapes of this file: N = S·B rows, row = s·B + b. One row of the fused product is Hq query heads, Hkv key heads,
// Hkv value heads of D features each, all of this tensor-parallel rank. Query head i uses key head i/(Hq/Hkv).

// queryTile is the number of query rows worked on at once: a tile of scores [queryTile, S] stays in cache.
const queryTile = 64

// Attention is causal self-attention with grouped queries, rotary positions and optional query and key norms.
type Attention[T tensor.Float] struct {
	QKV          ColumnLinear[T] // [(Hq+2·Hkv)·D, H] of this rank: query, key, value rows
	Out          RowLinear[T]    // [H, Hq·D]
	Hq, Hkv, D   int             // heads of this rank
	QNorm, KNorm *RMSNorm[T]     // gains [D]; nil: none
	Rope         *RopeTable[T]
}

type attnSaved[T tensor.Float] struct {
	whole tensor.Mat[T] // input of QKV
	qkv   tensor.Mat[T] // after norms and rotation
	raw   tensor.Mat[T] // before them; unset without norms
	inv   []T           // [N, Hq+Hkv] inverse root mean squares
	lse   []T           // [B, Hq, S]
	out   tensor.Mat[T] // [N, Hq·D]
}

// Forward maps [local rows, H] to the same.
func (a *Attention[T]) Forward(c *Ctx[T], x tensor.Mat[T]) (tensor.Mat[T], any) {
	s := &attnSaved[T]{}
	s.qkv, s.whole = a.QKV.Forward(c, x, TagColumnInput)
	a.prepare(c, s)
	s.out = c.Arena.Mat(s.qkv.Rows, a.Hq*a.D)
	s.lse = c.Arena.Alloc(c.B * a.Hq * c.S)
	a.eachGroup(c, func(b, kv int, score []T) { a.attend(c, s, b, kv, score) }, 1)
	return a.Out.Forward(c, s.out), s
}

// Backward returns the gradient of the input.
func (a *Attention[T]) Backward(c *Ctx[T], saved any, dy tensor.Mat[T]) tensor.Mat[T] {
	s := saved.(*attnSaved[T])
	dout := a.Out.Backward(c, dy, s.out)
	dqkv := c.Arena.Mat(s.qkv.Rows, s.qkv.Cols)
	clear(dqkv.Data)
	a.eachGroup(c, func(b, kv int, score []T) { a.attendGrad(c, s, dqkv, dout, b, kv, score) }, 3)
	a.unprepare(c, s, dqkv)
	return a.QKV.Backward(c, dqkv, s.whole, TagColumnInput)
}

// prepare applies the head norms and the rotation to queries and keys, in place.
func (a *Attention[T]) prepare(c *Ctx[T], s *attnSaved[T]) {
	heads := a.Hq + a.Hkv
	if a.QNorm != nil {
		s.raw = c.Arena.Mat(s.qkv.Rows, s.qkv.Cols)
		copy(s.raw.Data, s.qkv.Data)
		s.inv = c.Arena.Alloc(s.qkv.Rows * heads)
	}
	kernel.Parallel(s.qkv.Rows, 64, func(from, to int) {
		for r := from; r < to; r++ {
			for h := range heads {
				x := s.qkv.Row(r)[h*a.D : (h+1)*a.D]
				if a.QNorm != nil {
					n := a.headNorm(h)
					s.inv[r*heads+h] = kernel.RMSNorm(x, s.raw.Row(r)[h*a.D:(h+1)*a.D], n.Gain.Data, n.Eps)
				}
				a.Rope.rotate(x, r/c.B)
			}
		}
	})
}

// unprepare is the transpose of prepare, in place on dqkv; gains gather rows, then heads, in ascending order.
func (a *Attention[T]) unprepare(c *Ctx[T], s *attnSaved[T], dqkv tensor.Mat[T]) {
	heads := a.Hq + a.Hkv
	dx := make([]T, a.D)
	for r := range dqkv.Rows {
		for h := range heads {
			dy := dqkv.Row(r)[h*a.D : (h+1)*a.D]
			a.Rope.unrotate(dy, r/c.B)
			if a.QNorm != nil {
				n := a.headNorm(h)
				kernel.RMSNormGrad(dx, n.Gain.Grad, dy, s.raw.Row(r)[h*a.D:(h+1)*a.D], n.Gain.Data, s.inv[r*heads+h])
				copy(dy, dx)
			}
		}
	}
}

func (a *Attention[T]) headNorm(h int) *RMSNorm[T] {
	if h < a.Hq {
		return a.QNorm
	}
	return a.KNorm
}

// eachGroup runs f for every (row of the batch, key head), in parallel: groups write to places of their own.
func (a *Attention[T]) eachGroup(c *Ctx[T], f func(b, kv int, score []T), tiles int) {
	n := c.B * a.Hkv
	flop := 4 * float64(c.S) * float64(c.S) * float64(a.Hq/a.Hkv*a.D)
	minGroups := 1 + int(4e6/flop)
	scores := c.Arena.Alloc(n * tiles * queryTile * c.S)
	kernel.Parallel(n, minGroups, func(from, to int) {
		for g := from; g < to; g++ {
			f(g/a.Hkv, g%a.Hkv, scores[g*tiles*queryTile*c.S:(g+1)*tiles*queryTile*c.S])
		}
	})
}

func (a *Attention[T]) scale() T { return T(1 / math.Sqrt(float64(a.D))) }

// strided is the view of one (batch row, head): the element at position s is at [s·stride : s·stride+D].
func strided[T tensor.Float](m tensor.Mat[T], b, col int) []T { return m.Data[b*m.Cols+col:] }

// attend computes all query heads of one (batch row, key head).
func (a *Attention[T]) attend(c *Ctx[T], s *attnSaved[T], b, kv int, score []T) {
	ld, ldOut := c.B*s.qkv.Cols, c.B*s.out.Cols
	k := strided(s.qkv, b, (a.Hq+kv)*a.D)
	v := strided(s.qkv, b, (a.Hq+a.Hkv+kv)*a.D)
	for h := kv * (a.Hq / a.Hkv); h < (kv+1)*(a.Hq/a.Hkv); h++ {
		q, out := strided(s.qkv, b, h*a.D), strided(s.out, b, h*a.D)
		lse := s.lse[(b*a.Hq+h)*c.S : (b*a.Hq+h+1)*c.S]
		for from := 0; from < c.S; from += queryTile {
			to := min(from+queryTile, c.S)
			n := to - from
			kernel.Gemm(kernel.NT, n, to, a.D, q[from*ld:], ld, k, ld, score, to, false)
			for i := range n {
				row, seen := score[i*to:(i+1)*to], from+i+1
				mx, sum := kernel.SoftmaxInto(row[:seen], row[:seen], a.scale())
				lse[from+i] = mx + kernel.Log(sum)
				clear(row[seen:])
			}
			kernel.Gemm(kernel.NN, n, a.D, to, score, to, v, ld, out[from*ldOut:], ldOut, false)
		}
	}
}

// attendGrad is the backward of attend: probabilities are recomputed from the saved log-sum-exp.
func (a *Attention[T]) attendGrad(c *Ctx[T], s *attnSaved[T], dqkv, dout tensor.Mat[T], b, kv int, scratch []T) {
	ld, ldOut := c.B*s.qkv.Cols, c.B*dout.Cols
	kCol, vCol := (a.Hq+kv)*a.D, (a.Hq+a.Hkv+kv)*a.D
	k, v := strided(s.qkv, b, kCol), strided(s.qkv, b, vCol)
	dk, dv := strided(dqkv, b, kCol), strided(dqkv, b, vCol)
	p, dp, ds := scratch[:queryTile*c.S], scratch[queryTile*c.S:2*queryTile*c.S], scratch[2*queryTile*c.S:]
	for h := kv * (a.Hq / a.Hkv); h < (kv+1)*(a.Hq/a.Hkv); h++ {
		q, dq, do := strided(s.qkv, b, h*a.D), strided(dqkv, b, h*a.D), strided(dout, b, h*a.D)
		lse := s.lse[(b*a.Hq+h)*c.S : (b*a.Hq+h+1)*c.S]
		for from := 0; from < c.S; from += queryTile {
			to := min(from+queryTile, c.S)
			n := to - from
			kernel.Gemm(kernel.NT, n, to, a.D, q[from*ld:], ld, k, ld, p, to, false)
			kernel.Gemm(kernel.NT, n, to, a.D, do[from*ldOut:], ldOut, v, ld, dp, to, false)
			for i := range n {
				row, seen := p[i*to:(i+1)*to], from+i+1
				kernel.ExpScaled(row[:seen], row[:seen], a.scale(), lse[from+i])
				clear(row[seen:])
				kernel.SoftmaxGradRow(ds[i*to:i*to+seen], row[:seen], dp[i*to:i*to+seen], a.scale())
				clear(ds[i*to+seen : (i+1)*to])
			}
			kernel.Gemm(kernel.NN, n, a.D, to, ds, to, k, ld, dq[from*ld:], ld, false)
			kernel.Gemm(kernel.TN, to, a.D, n, ds, to, q[from*ld:], ld, dk, ld, true)
			kernel.Gemm(kernel.TN, to, a.D, n, p, to, do[from*ldOut:], ldOut, dv, ld, true)
		}
	}
}
