package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tailMask is 16 lanes of ones and 16 of zeros: the mask of a tail of n starts 16−n lanes in.
const tailMask = "tailmask"

// constantData writes the constants that the kernels of the file asked for.
func (e *emitter) constantData() {
	for _, b := range slices.Sorted(maps.Keys(e.data)) {
		e.StaticGlobal(fmt.Sprintf("c%08x", b))
		e.DataAttributes(attr.RODATA | attr.NOPTR)
		copies := 1
		if e.isa == avx2 {
			copies = 8
		}
		for range copies {
			e.AppendDatum(operand.U32(b))
		}
	}
	if e.isa == avx2 {
		e.StaticGlobal(tailMask)
		e.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 16 {
			e.AddDatum(8*i, operand.U64(uint64(i/8)-1))
		}
	}
}

// loop emits body for every 16 elements and once, masked, for the rest.
func (e *emitter) loop(body func()) {
	e.SUBQ(operand.Imm(16), e.n)
	e.JL(operand.LabelRef("tail"))
	e.Label("turn")
	for e.half = range e.isa.halves() {
		body()
	}
	e.ADDQ(operand.Imm(64), e.index)
	e.SUBQ(operand.Imm(16), e.n)
	e.JGE(operand.LabelRef("turn"))
	e.Label("tail")
	e.ADDQ(operand.Imm(16), e.n)
	e.JZ(operand.LabelRef("done"))
	e.tail = true
	if e.isa == avx512 {
		e.masked512(body)
	} else {
		e.masked2(body)
	}
	e.tail = false
	e.Label("done")
}

// masked512 emits body under the mask of the first n lanes.
func (e *emitter) masked512(body func()) {
	ones, bits := e.GP32(), e.GP32()
	e.MOVL(operand.U32(0xffff), ones)
	e.BZHIL(e.n.As32(), ones, bits)
	e.k = e.K()
	e.KMOVW(bits, e.k)
	e.half = 0
	body()
}

// masked2 emits body for both halves, each under its part of the mask. The second half may be empty; then it
// neither loads nor stores, and the lanes keep their values.
func (e *emitter) masked2(body func()) {
	at := e.GP64()
	e.LEAQ(operand.NewDataAddr(operand.NewStaticSymbol(tailMask), 64), at)
	e.SHLQ(operand.Imm(2), e.n)
	e.SUBQ(e.n, at)
	for e.half = range 2 {
		e.mask = e.vec()
		e.VMOVUPS(operand.Mem{Base: at, Disp: 32 * e.half}, e.mask)
		body()
	}
}

// here is this half's place in the array at p.
func (e *emitter) here(p reg.GPVirtual) operand.Mem {
	return operand.Mem{Base: p, Index: e.index, Scale: 1, Disp: 32 * e.half}
}

// load reads this half's elements; lanes beyond the tail are zero.
func (e *emitter) load(p reg.GPVirtual) reg.VecVirtual {
	v := e.vec()
	switch {
	case !e.tail:
		e.VMOVUPS(e.here(p), v)
	case e.isa == avx512:
		e.VMOVUPS_Z(e.here(p), e.k, v)
	default:
		e.VMASKMOVPS(e.here(p), e.mask, v)
	}
	return v
}

// store writes this half's elements and nothing beyond the tail.
func (e *emitter) store(v reg.VecVirtual, p reg.GPVirtual) {
	switch {
	case !e.tail:
		e.VMOVUPS(v, e.here(p))
	case e.isa == avx512:
		e.VMOVUPS(v, e.k, e.here(p))
	default:
		e.VMASKMOVPS(v, e.mask, e.here(p))
	}
}

// lanes are the accumulators of a reduction, loaded before the loop and stored after it.
type lanes struct {
	at  reg.GPVirtual
	reg []reg.VecVirtual
}

func (e *emitter) lanes(name string) *lanes {
	l := &lanes{at: e.ptr(name)}
	for h := range e.isa.halves() {
		v := e.vec()
		e.VMOVUPS(operand.Mem{Base: l.at, Disp: 32 * h}, v)
		l.reg = append(l.reg, v)
	}
	return l
}

// update lets op change this half's lanes. Lanes beyond the tail keep their bits.
func (e *emitter) update(l *lanes, op func(acc reg.VecVirtual)) {
	acc := l.reg[e.half]
	if !e.tail {
		op(acc)
		return
	}
	next := e.copyOf(acc)
	op(next)
	if e.isa == avx512 {
		e.VMOVAPS(next, e.k, acc)
	} else {
		e.VBLENDVPS(e.mask, next, acc, acc)
	}
}

func (e *emitter) storeLanes(l *lanes) {
	for h, v := range l.reg {
		e.VMOVUPS(v, operand.Mem{Base: l.at, Disp: 32 * h})
	}
}
