package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Column masks. AVX-512 keeps them in K1 (low lanes) and K2; AVX2 loads them from a table into two vectors that are
// free outside the k loop.
const maskName = "gemmMask"

// maskTable writes 16 set and 16 clear lanes: the 16 words from word 16−n on have their first n set.
func maskTable() {
	GLOBL(maskName, RODATA|NOPTR)
	for i := range 32 {
		v := uint32(0)
		if i < 16 {
			v = ^uint32(0)
		}
		DATA(4*i, U32(v))
	}
}

// setMask prepares the masks for n columns (1..2·lanes): tmp = 2^n − 1 (without BMI2, which dispatch does not check),
// low half and high half. tmp is clobbered. AVX2 calls maskLanes instead.
func (s isa) setMask(n, tmp reg.GPPhysical) {
	if s.lanes != 16 {
		return
	}
	XORL(tmp.As32(), tmp.As32())
	BTSQ(n, tmp)
	DECQ(tmp)
	KMOVW(tmp.As32(), reg.K1)
	SHRQ(U8(16), tmp)
	KMOVW(tmp.As32(), reg.K2)
}

// maskLanes loads the AVX2 masks for n columns (1..16) into m0 and m1; n and tmp are clobbered.
func maskLanes(n, tmp reg.GPPhysical, m0, m1 reg.VecPhysical) {
	table := NewDataAddr(Symbol{Name: maskName, Static: true}, 0)
	NEGQ(n)
	LEAQ(table, tmp)
	VMOVUPS(Mem{Base: tmp, Index: n, Scale: 4, Disp: 64}, m0)
	VMOVUPS(Mem{Base: tmp, Index: n, Scale: 4, Disp: 96}, m1)
}

// loadC sets the accumulators to zero, or to C when the tile asks for it.
func (b body) loadC() {
	CMPQ(Mem{Base: rT, Disp: offHasLoad}, U8(0))
	JNE(LabelRef(b.label("load")))
	for i := range b.vecs * b.rows {
		b.zero(b.vec[i])
	}
	JMP(LabelRef(b.label("start")))
	Label(b.label("load"))
	b.visitC("loadpart", func(i, v int, at Mem) { VMOVUPS(at, b.acc(i, v)) },
		func(i, v int, at Mem, mask reg.Register) { b.maskedLoad(at, mask, b.acc(i, v)) })
	Label(b.label("start"))
}

// storeC writes the accumulators to C.
func (b body) storeC() {
	Load(Param("t"), rT)
	b.visitC("storepart", func(i, v int, at Mem) { VMOVUPS(b.acc(i, v), at) },
		func(i, v int, at Mem, mask reg.Register) { b.maskedStore(b.acc(i, v), mask, at) })
}

// visitC visits the vectors of a tile of C. AVX-512 always uses its masks; AVX2 has a branch for full width, whose moves
// are much cheaper than VMASKMOVPS on some CPUs.
func (b body) visitC(place string, full func(i, v int, at Mem), part func(i, v int, at Mem, mask reg.Register)) {
	masks := []reg.Register{reg.K1, reg.K2}
	if b.lanes != 16 {
		masks = []reg.Register{b.spare(0), b.spare(1)}
		MOVQ(Mem{Base: rT, Disp: offCols}, rK)
		CMPQ(rK, U8(b.vecs*b.lanes))
		JNE(LabelRef(b.label(place)))
		b.walkC(full)
		JMP(LabelRef(b.label(place + "_done")))
		Label(b.label(place))
		maskLanes(rK, rEnd, b.spare(0), b.spare(1))
	}
	b.walkC(func(i, v int, at Mem) { part(i, v, at, masks[v]) })
	if b.lanes != 16 {
		Label(b.label(place + "_done"))
	}
}

// walkC calls f for the vectors of each row of C.
func (b body) walkC(f func(i, v int, at Mem)) {
	MOVQ(Mem{Base: rT, Disp: offC}, rEnd)
	for i := range b.rows {
		for v := range b.vecs {
			f(i, v, Mem{Base: rEnd, Disp: 4 * b.lanes * v})
		}
		if i+1 < b.rows {
			ADDQ(rLdc, rEnd)
		}
	}
}

func (s isa) zero(x reg.VecPhysical) {
	if s.lanes == 16 {
		VPXORD(x, x, x)
		return
	}
	VXORPS(x, x, x)
}

func (s isa) maskedLoad(at Mem, mask reg.Register, x reg.VecPhysical) {
	if s.lanes == 16 {
		VMOVUPS_Z(at, mask, x)
		return
	}
	VMASKMOVPS(at, mask, x)
}

func (s isa) maskedStore(x reg.VecPhysical, mask reg.Register, at Mem) {
	if s.lanes == 16 {
		VMOVUPS(x, mask, at)
		return
	}
	VMASKMOVPS(x, mask, at)
}
