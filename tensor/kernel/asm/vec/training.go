package main

import "github.com/mmcloughlin/avo/operand"

// training writes the optimizer.
func training(e *emitter) { adamw(e) }

// adamw reads its ten scalars in the order of adamwConst.
// (g would be a register to the assembler.)
func adamw(e *emitter) {
	e.begin("AdamW", "p, grad, m, v, c *float32", "one step of AdamW with the scalars c, as in math.go.")
	p, g, m, v, at := e.ptr("p"), e.ptr("grad"), e.ptr("m"), e.ptr("v"), e.ptr("c")
	var c []vector
	for i := range 10 {
		c = append(c, e.broadcast(operand.Mem{Base: at, Disp: 4 * i}))
	}
	gradScale, beta1, omBeta1, beta2, omBeta2 := c[0], c[1], c[2], c[3], c[4]
	inv1, inv2, eps, wd, minusLR := c[5], c[6], c[7], c[8], c[9]
	e.loop(func() {
		d, mi, vi, pi := e.load(g), e.load(m), e.load(v), e.load(p)
		e.VMULPS(gradScale(), d, d)
		t := e.vec()
		e.VMULPS(omBeta1(), d, t)
		e.VFMADD213PS(t, beta1(), mi)
		e.store(mi, m)
		e.VMULPS(omBeta2(), d, t)
		e.VMULPS(d, t, t)
		e.VFMADD213PS(t, beta2(), vi)
		e.store(vi, v)
		e.VMULPS(inv2(), vi, vi)
		e.VSQRTPS(vi, vi)
		e.VADDPS(eps(), vi, vi)
		e.VMULPS(inv1(), mi, mi)
		e.VDIVPS(vi, mi, mi)
		e.VFMADD231PS(pi, wd(), mi)
		e.VFMADD231PS(mi, minusLR(), pi)
		e.store(pi, p)
	})
	e.end()
}
