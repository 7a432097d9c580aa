package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// reductions writes the kernels that add into the lanes of math_lanes.go.
func reductions(e *emitter) {
	sum(e)
	dot(e)
	if e.isa == avx512 {
		sumSquares512(e)
	} else {
		sumSquares2(e)
	}
	maximum(e)
	sumExp(e)
	softmax(e)
	rmsNormGradSum(e)
}

func sum(e *emitter) {
	e.begin("Sum", "acc *[16]float32, x *float32", "acc += x by lanes.")
	acc, x := e.lanes("acc"), e.ptr("x")
	e.loop(func() {
		v := e.load(x)
		e.update(acc, func(a reg.VecVirtual) { e.VADDPS(v, a, a) })
	})
	e.storeLanes(acc)
	e.end()
}

func dot(e *emitter) {
	e.begin("Dot", "acc *[16]float32, x, y *float32", "acc += x·y by lanes, fused.")
	acc, x, y := e.lanes("acc"), e.ptr("x"), e.ptr("y")
	e.loop(func() {
		u, v := e.load(x), e.load(y)
		e.update(acc, func(a reg.VecVirtual) { e.VFMADD231PS(v, u, a) })
	})
	e.storeLanes(acc)
	e.end()
}

// maximum keeps the old lane unless z is greater: VMAXPS gives its second source where the comparison fails.
func maximum(e *emitter) {
	e.begin("Max", "acc *[16]float32, x *float32, scale float32", "acc = max(acc, scale·x) by lanes.")
	acc, x, scale := e.lanes("acc"), e.ptr("x"), e.scalar("scale")
	e.loop(func() {
		z := e.load(x)
		e.VMULPS(scale(), z, z)
		e.update(acc, func(a reg.VecVirtual) { e.VMAXPS(a, z, a) })
	})
	e.storeLanes(acc)
	e.end()
}

func sumExp(e *emitter) {
	e.begin("SumExp", "acc *[16]float32, x *float32, max float32", "acc += exp(x − max) by lanes.")
	acc, x, max := e.lanes("acc"), e.ptr("x"), e.scalar("max")
	exp := e.exp()
	e.loop(func() {
		v := e.load(x)
		e.VSUBPS(max(), v, v)
		y := exp(v)
		e.update(acc, func(a reg.VecVirtual) { e.VADDPS(y, a, a) })
	})
	e.storeLanes(acc)
	e.end()
}

func softmax(e *emitter) {
	e.begin("Softmax", "acc *[16]float32, dst, src *float32, scale, max float32",
		"dst = exp(scale·src − max), added to acc by lanes.")
	acc, dst, src := e.lanes("acc"), e.ptr("dst"), e.ptr("src")
	scale, max := e.scalar("scale"), e.scalar("max")
	exp := e.exp()
	e.loop(func() {
		v := e.load(src)
		e.VMULPS(scale(), v, v)
		e.VSUBPS(max(), v, v)
		y := exp(v)
		e.store(y, dst)
		e.update(acc, func(a reg.VecVirtual) { e.VADDPS(y, a, a) })
	})
	e.storeLanes(acc)
	e.end()
}

func rmsNormGradSum(e *emitter) {
	e.begin("RMSNormGradSum", "acc *[16]float32, dy, x, gain *float32, inv float32",
		"acc += (dy·gain)·(x·inv) by lanes.")
	acc, dy, x, gain := e.lanes("acc"), e.ptr("dy"), e.ptr("x"), e.ptr("gain")
	inv := e.scalar("inv")
	e.loop(func() {
		g, xh := e.load(dy), e.load(x)
		e.VMULPS(e.load(gain), g, g)
		e.VMULPS(inv(), xh, xh)
		e.update(acc, func(a reg.VecVirtual) { e.VFMADD231PS(xh, g, a) })
	})
	e.storeLanes(acc)
	e.end()
}

const sumSquaresDoc = "acc += x² by lanes of float64, where the square is exact. Zeros beyond the tail change nothing:" +
	" a sum of squares is never −0."

// sumSquares512 has the 16 lanes in two vectors of 8 float64.
func sumSquares512(e *emitter) {
	e.begin("SumSquares", "acc *[16]float64, x *float32", sumSquaresDoc)
	at, x := e.ptr("acc"), e.ptr("x")
	acc := []reg.VecVirtual{e.ZMM(), e.ZMM()}
	for i, a := range acc {
		e.VMOVUPD(operand.Mem{Base: at, Disp: 64 * i}, a)
	}
	e.loop(func() {
		v, high := e.load(x), e.YMM()
		e.VEXTRACTF32X8(operand.Imm(1), v, high)
		for i, f := range []reg.Register{v.AsY(), high} {
			d := e.ZMM()
			e.VCVTPS2PD(f, d)
			e.VFMADD231PD(d, d, acc[i])
		}
	})
	for i, a := range acc {
		e.VMOVUPD(a, operand.Mem{Base: at, Disp: 64 * i})
	}
	e.end()
}

// sumSquares2 has them in four vectors of 4.
func sumSquares2(e *emitter) {
	e.begin("SumSquares", "acc *[16]float64, x *float32", sumSquaresDoc)
	at, x := e.ptr("acc"), e.ptr("x")
	acc := []reg.VecVirtual{e.YMM(), e.YMM(), e.YMM(), e.YMM()}
	for i, a := range acc {
		e.VMOVUPD(operand.Mem{Base: at, Disp: 32 * i}, a)
	}
	e.loop(func() {
		v, high := e.load(x), e.XMM()
		e.VEXTRACTF128(operand.Imm(1), v, high)
		for i, f := range []reg.Register{v.AsX(), high} {
			d := e.YMM()
			e.VCVTPS2PD(f, d)
			e.VFMADD231PD(d, d, acc[2*e.half+i])
		}
	})
	for i, a := range acc {
		e.VMOVUPD(a, operand.Mem{Base: at, Disp: 32 * i})
	}
	e.end()
}
