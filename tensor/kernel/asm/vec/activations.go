package main

// activations writes the kernels of norms, gates and softmax's gradients.
func activations(e *emitter) {
	softmaxGrad(e)
	crossEntropyGrad(e)
	rmsNorm(e)
	rmsNormGrad(e)
	swiglu(e)
	swigluGrad(e)
	squaredReLU(e)
	squaredReLUGrad(e)
}

func softmaxGrad(e *emitter) {
	e.begin("SoftmaxGrad", "ds, p, dp *float32, scale, c float32", "ds = (scale·p)·(dp − c).")
	ds, p, dp := e.ptr("ds"), e.ptr("p"), e.ptr("dp")
	scale, c := e.scalar("scale"), e.scalar("c")
	e.loop(func() {
		u, t := e.load(p), e.load(dp)
		e.VMULPS(scale(), u, u)
		e.VSUBPS(c(), t, t)
		e.VMULPS(t, u, u)
		e.store(u, ds)
	})
	e.end()
}

func crossEntropyGrad(e *emitter) {
	e.begin("CrossEntropyGrad", "logits *float32, max, k float32", "logits = exp(logits − max)·k.")
	logits, max, k := e.ptr("logits"), e.scalar("max"), e.scalar("k")
	exp := e.exp()
	e.loop(func() {
		l := e.load(logits)
		e.VSUBPS(max(), l, l)
		y := exp(l)
		e.VMULPS(k(), y, y)
		e.store(y, logits)
	})
	e.end()
}

func rmsNorm(e *emitter) {
	e.begin("RMSNorm", "y, x, gain *float32, inv float32", "y = (x·inv)·gain.")
	y, x, gain, inv := e.ptr("y"), e.ptr("x"), e.ptr("gain"), e.scalar("inv")
	e.loop(func() {
		v, g := e.load(x), e.load(gain)
		e.VMULPS(inv(), v, v)
		e.VMULPS(g, v, v)
		e.store(v, y)
	})
	e.end()
}

func rmsNormGrad(e *emitter) {
	e.begin("RMSNormGrad", "dx, dgain, dy, x, gain *float32, inv, c float32",
		"dgain += dy·x̂ and dx = (dy·gain − x̂·c)·inv with x̂ = x·inv.")
	dx, dgain, dy := e.ptr("dx"), e.ptr("dgain"), e.ptr("dy")
	x, gain := e.ptr("x"), e.ptr("gain")
	inv, c := e.scalar("inv"), e.scalar("c")
	e.loop(func() {
		xh, d, g, sum := e.load(x), e.load(dy), e.load(gain), e.load(dgain)
		e.VMULPS(inv(), xh, xh)
		e.VMULPS(d, g, g)
		e.VFMADD231PS(xh, d, sum)
		e.store(sum, dgain)
		e.VFNMADD231PS(c(), xh, g)
		e.VMULPS(inv(), g, g)
		e.store(g, dx)
	})
	e.end()
}

func swiglu(e *emitter) {
	e.begin("SwiGLU", "out, gate, up *float32", "out = (gate·sigmoid(gate))·up.")
	out, gate, up := e.ptr("out"), e.ptr("gate"), e.ptr("up")
	sigmoid := e.sigmoid()
	e.loop(func() {
		g := e.load(gate)
		s := sigmoid(g)
		e.VMULPS(s, g, s)
		e.VMULPS(e.load(up), s, s)
		e.store(s, out)
	})
	e.end()
}

func swigluGrad(e *emitter) {
	e.begin("SwiGLUGrad", "dgate, dup, dout, gate, up *float32",
		"dup = dout·silu(gate) and dgate = dout·up·silu'(gate), as in math.go.")
	dgate, dup, dout := e.ptr("dgate"), e.ptr("dup"), e.ptr("dout")
	gate, up := e.ptr("gate"), e.ptr("up")
	sigmoid, one, oneReg := e.sigmoid(), e.float(1), e.floatReg(1)
	e.loop(func() {
		g := e.load(gate)
		s := sigmoid(g)
		d, a := e.load(dout), e.load(up)
		slope, silu := e.vec(), e.vec()
		e.VSUBPS(s, oneReg(), slope)
		e.VFMADD213PS(one(), g, slope)
		e.VMULPS(a, d, a)
		e.VMULPS(s, g, silu)
		e.VMULPS(silu, d, silu)
		e.VMULPS(s, a, a)
		e.VMULPS(slope, a, a)
		e.store(silu, dup)
		e.store(a, dgate)
	})
	e.end()
}

// squaredReLU takes max(0, x) with x second, which is x where x is NaN.
func squaredReLU(e *emitter) {
	e.begin("SquaredReLU", "out, x *float32", "out = max(0, x)².")
	out, x := e.ptr("out"), e.ptr("x")
	zero := e.floatReg(0)
	e.loop(func() {
		r := e.load(x)
		e.VMAXPS(r, zero(), r)
		e.VMULPS(r, r, r)
		e.store(r, out)
	})
	e.end()
}

func squaredReLUGrad(e *emitter) {
	e.begin("SquaredReLUGrad", "dx, dout, x *float32", "dx = dout·(r + r) with r = max(0, x).")
	dx, dout, x := e.ptr("dx"), e.ptr("dout"), e.ptr("x")
	zero := e.floatReg(0)
	e.loop(func() {
		r, d := e.load(x), e.load(dout)
		e.VMAXPS(r, zero(), r)
		e.VADDPS(r, r, r)
		e.VMULPS(r, d, d)
		e.store(d, dx)
	})
	e.end()
}
