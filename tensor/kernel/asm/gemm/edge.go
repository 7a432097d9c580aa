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

// loadC sets the accumulators of rows rows to zero, or to C when the tile asks for it.
func loadC(s isa, rows int, name func(string) string) {
	CMPQ(Mem{Base: rT, Disp: offHasLoad}, U8(0))
	JNE(LabelRef(name("load")))
	for i := range 2 * rows {
		s.zero(s.vec[i])
	}
	JMP(LabelRef(name("start")))
	Label(name("load"))
	s.loopC(rows, name("loadpart"), func(i, v int, at Mem) { VMOVUPS(at, s.vec[2*i+v]) },
		func(i, v int, at Mem, mask reg.Register) { s.maskedLoad(at, mask, s.vec[2*i+v]) })
	Label(name("start"))
}

// storeC writes the accumulators to C.
func storeC(s isa, rows int, name func(string) string) {
	Load(Param("t"), rT)
	s.loopC(rows, name("storepart"), func(i, v int, at Mem) { VMOVUPS(s.vec[2*i+v], at) },
		func(i, v int, at Mem, mask reg.Register) { s.maskedStore(s.vec[2*i+v], mask, at) })
}

// loopC visits the vectors of a tile of C. AVX-512 always uses its masks; AVX2 has a branch for full width, whose
// moves are much cheaper than VMASKMOVPS on some CPUs.
func (s isa) loopC(rows int, label string, full func(i, v int, at Mem), part func(i, v int, at Mem, mask reg.Register)) {
	masks := []reg.Register{reg.K1, reg.K2}
	if s.lanes != 16 {
		masks = []reg.Register{s.vec[12], s.vec[13]}
		MOVQ(Mem{Base: rT, Disp: offCols}, rK)
		CMPQ(rK, U8(2*s.lanes))
		JNE(LabelRef(label))
		s.walkC(rows, full)
		JMP(LabelRef(label + "_done"))
		Label(label)
		maskLanes(rK, rEnd, s.vec[12], s.vec[13])
	}
	s.walkC(rows, func(i, v int, at Mem) { part(i, v, at, masks[v]) })
	if s.lanes != 16 {
		Label(label + "_done")
	}
}

// walkC calls f for both vectors of each row of C.
func (s isa) walkC(rows int, f func(i, v int, at Mem)) {
	MOVQ(Mem{Base: rT, Disp: offC}, rEnd)
	for i := range rows {
		for v := range 2 {
			f(i, v, Mem{Base: rEnd, Disp: 4 * s.lanes * v})
		}
		if i+1 < rows {
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
