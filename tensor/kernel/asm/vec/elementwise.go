package main

// elementwise writes the kernels without a memory between elements.
func elementwise(e *emitter) {
	add(e)
	mul(e)
	scale(e)
	axpy(e)
	exponential(e)
	expScaled(e)
	rope(e, "RoPE", true)
	rope(e, "RoPEGrad", false)
}

func add(e *emitter) {
	e.begin("Add", "dst, a, b *float32", "dst = a + b.")
	dst, a, b := e.ptr("dst"), e.ptr("a"), e.ptr("b")
	e.loop(func() {
		x, y := e.load(a), e.load(b)
		e.VADDPS(y, x, x)
		e.store(x, dst)
	})
	e.end()
}

func mul(e *emitter) {
	e.begin("Mul", "dst, a, b *float32", "dst = a·b.")
	dst, a, b := e.ptr("dst"), e.ptr("a"), e.ptr("b")
	e.loop(func() {
		x, y := e.load(a), e.load(b)
		e.VMULPS(y, x, x)
		e.store(x, dst)
	})
	e.end()
}

func scale(e *emitter) {
	e.begin("Scale", "x *float32, s float32", "x *= s.")
	x, s := e.ptr("x"), e.scalar("s")
	e.loop(func() {
		v := e.load(x)
		e.VMULPS(s(), v, v)
		e.store(v, x)
	})
	e.end()
}

func axpy(e *emitter) {
	e.begin("Axpy", "y *float32, a float32, x *float32", "y = a·x + y, fused.")
	y, a, x := e.ptr("y"), e.scalar("a"), e.ptr("x")
	e.loop(func() {
		acc := e.load(y)
		e.VFMADD231PS(e.load(x), a(), acc)
		e.store(acc, y)
	})
	e.end()
}

func exponential(e *emitter) {
	e.begin("Exp", "dst, src *float32", "dst = exp(src).")
	dst, src := e.ptr("dst"), e.ptr("src")
	exp := e.exp()
	e.loop(func() { e.store(exp(e.load(src)), dst) })
	e.end()
}

func expScaled(e *emitter) {
	e.begin("ExpScaled", "dst, src *float32, scale, shift float32", "dst = exp(scale·src − shift).")
	dst, src := e.ptr("dst"), e.ptr("src")
	scale, shift := e.scalar("scale"), e.scalar("shift")
	exp := e.exp()
	e.loop(func() {
		x := e.load(src)
		e.VMULPS(scale(), x, x)
		e.VSUBPS(shift(), x, x)
		e.store(exp(x), dst)
	})
	e.end()
}

// rope rotates pairs; the transpose swaps the signs of the two products with sin.
func rope(e *emitter, name string, forward bool) {
	e.begin(name, "x1, x2, cos, sin *float32", "the rotation of the pairs (x1, x2) as in math.go.")
	x1, x2, cos, sin := e.ptr("x1"), e.ptr("x2"), e.ptr("cos"), e.ptr("sin")
	minus, plus := e.VFMSUB231PS, e.VFMADD231PS
	if !forward {
		minus, plus = plus, minus
	}
	e.loop(func() {
		a, b, c, s := e.load(x1), e.load(x2), e.load(cos), e.load(sin)
		y1, y2 := e.vec(), e.vec()
		e.VMULPS(s, b, y1)
		e.VMULPS(s, a, y2)
		minus(c, a, y1)
		plus(c, b, y2)
		e.store(y1, x1)
		e.store(y2, x2)
	})
	e.end()
}
