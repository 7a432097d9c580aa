package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The constants of exp32 in math_exp.go.
const (
	expLog2E = 0x1.715476p+0
	expLn2Hi = 0x1.62e43p-1
	expLn2Lo = -0x1.05c61p-29
	expMagic = 0x1.8p+23
	expMin   = -0x1.5d589ep+6
	expMax   = 0x1.62e42ep+6
	expOver  = 89 // above expMax, where 2^n·exp(r) overflows by itself while n is still small
)

// expC is the polynomial of exp32, highest power first.
var expC = []float32{0x1.6a23dp-10, 0x1.123a2p-7, 0x1.5558f2p-5, 0x1.555492p-3, 0x1.fffffcp-2, 1, 1}

// Comparison predicates that hold for NaN and signal nothing.
const (
	notLess        = operand.U8(0x15)
	notLessOrEqual = operand.U8(0x16)
)

// function maps a register to a new one and may spoil the argument.
type function func(x reg.VecVirtual) reg.VecVirtual

// expParts is what both forms of exp32 share: t = x·log2(e) + magic, n = t − magic, exp(x − n·ln 2).
func (e *emitter) expParts() func(x, r reg.VecVirtual) (t, n, p reg.VecVirtual) {
	magic, log2e := e.float(expMagic), e.float(expLog2E)
	hi, lo := e.float(expLn2Hi), e.float(expLn2Lo)
	var c []value
	for _, f := range expC {
		c = append(c, e.float(f))
	}
	return func(x, r reg.VecVirtual) (t, n, p reg.VecVirtual) {
		t = e.copyOf(magic())
		e.VFMADD231PS(log2e(), x, t)
		n = e.vec()
		e.VSUBPS(magic(), t, n)
		e.VFNMADD231PS(hi(), n, r)
		e.VFNMADD231PS(lo(), n, r)
		p = e.copyOf(c[0]())
		for _, ci := range c[1:] {
			e.VFMADD213PS(ci(), r, p)
		}
		return t, n, p
	}
}

// exp prepares exp32.
func (e *emitter) exp() function {
	if e.isa == avx512 {
		return e.exp512()
	}
	return e.exp2()
}

// exp512 scales with VSCALEFPS, which overflows to +Inf by itself; the mask makes zero what would be subnormal.
// min(89, x) with x second gives x where x is NaN.
func (e *emitter) exp512() function {
	parts := e.expParts()
	over, under := e.floatReg(expOver), e.float(expMin)
	return func(x reg.VecVirtual) reg.VecVirtual {
		k := e.K()
		e.VCMPPS(notLess, under(), x, k)
		r := e.vec()
		e.VMINPS(x, over(), r)
		_, n, p := parts(r, r)
		e.VSCALEFPS_Z(n, p, k, p)
		return p
	}
}

// exp2 adds n to the exponent bits of p: n stands in the low bits of t. Results out of range are replaced, those
// below by zero, those above and NaN by x + Inf.
func (e *emitter) exp2() function {
	parts := e.expParts()
	under, over := e.float(expMin), e.float(expMax)
	inf := e.float(float32(math.Inf(1)))
	return func(x reg.VecVirtual) reg.VecVirtual {
		t, _, p := parts(x, e.copyOf(x))
		e.VPSLLD(operand.Imm(23), t, t)
		e.VPADDD(t, p, p)
		m, big, y := e.vec(), e.vec(), e.vec()
		e.VCMPPS(notLess, under(), x, m)
		e.VANDPS(m, p, p)
		e.VCMPPS(notLessOrEqual, over(), x, m)
		e.VADDPS(inf(), x, big)
		e.VBLENDVPS(m, big, p, y)
		return y
	}
}

// sigmoid prepares sigmoidOf: 1/(1 + exp(−x)).
func (e *emitter) sigmoid() function {
	exp, sign := e.exp(), e.bits(1<<31)
	one, oneReg := e.float(1), e.floatReg(1)
	return func(x reg.VecVirtual) reg.VecVirtual {
		minus := e.vec()
		e.VXORPS(sign(), x, minus)
		d := exp(minus)
		e.VADDPS(one(), d, d)
		s := e.vec()
		e.VDIVPS(d, oneReg(), s)
		return s
	}
}
