package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// order says how a tile walks A: rowMajor has k contiguous (NN, NT), kMajor has the rows contiguous (TN, packed).
type order string

const (
	rowMajor order = "Row"
	kMajor   order = "Col"
)

// Byte offsets of the fields of kernel.tile; a test there holds them to the struct.
const (
	offA, offB, offC, offNext          = 0, 8, 16, 24
	offLda, offLdb, offLdc             = 32, 40, 48
	offK, offRows, offCols, offHasLoad = 56, 64, 72, 80
	offFar, offFarEnd                  = 88, 96
)

// General registers of a tile. BP and SP stay untouched; R14 and R15 are free in assembly functions (ABI0).
var (
	rT      = reg.RSI // tile until the loop, then B
	rB      = reg.RSI
	rNext   = reg.RAX // walks the next tile of C, one row each unrolled step, to pull it into the cache
	rEnd    = reg.RDI // last row of it
	rLdb    = reg.RBX
	rLdb2   = reg.R14
	rFar    = reg.RDX // walks data that packing will want soon, one line each unrolled step
	rFarEnd = reg.R15
	rK      = reg.RCX
	rA      = reg.R8
	rA7     = reg.R9 // row 7 of A
	rLda    = reg.R10
	rLda3   = reg.R11
	rLda5   = reg.R12
	rLda4   = reg.R12 // unroll·lda, k-major only
	rLdc    = reg.R13
)

const unroll = 4 // k steps of the main loop

// tileFunc writes the function that computes one tile: C[rows,cols] = or += A·B with rows 1..s.rows, cols 1..2·lanes.
func tileFunc(s isa, o order) {
	TEXT(fmt.Sprintf("tile%s%s", o, s.name), NOSPLIT, "func(t *byte)")
	Doc(fmt.Sprintf("tile%s%s computes the tile (*tile[float32])(t): rows 1..%d, cols 1..%d.", o, s.name, s.rows, 2*s.lanes))
	Pragma("noescape")
	loadParams(s, o)
	for r := s.rows; r > 1; r-- {
		CMPQ(rEnd, U8(r))
		JEQ(LabelRef(fmt.Sprintf("rows%d", r)))
	}
	for r := 1; r <= s.rows; r++ {
		Label(fmt.Sprintf("rows%d", r))
		tileBody(s, o, r)
	}
}

// loadParams fills the general registers and the column masks; rEnd holds the number of rows afterwards.
func loadParams(s isa, o order) {
	Load(Param("t"), rT)
	field := func(off int) Mem { return Mem{Base: rT, Disp: off} }
	MOVQ(field(offCols), rK)
	s.setMask(rK, rNext)
	MOVQ(field(offRows), rEnd)
	MOVQ(field(offNext), rNext)
	MOVQ(field(offA), rA)
	MOVQ(field(offLda), rLda)
	MOVQ(field(offLdb), rLdb)
	MOVQ(field(offLdc), rLdc)
	for _, r := range []reg.GPPhysical{rLda, rLdb, rLdc} {
		SHLQ(U8(2), r)
	}
	LEAQ(Mem{Base: rLda, Index: rLda, Scale: 2}, rLda3)
	LEAQ(Mem{Base: rLdb, Index: rLdb, Scale: 1}, rLdb2)
	if o != rowMajor {
		LEAQ(Mem{Base: rLda3, Index: rLda, Scale: 1}, rLda4)
		return
	}
	if s.rows > 5 {
		LEAQ(Mem{Base: rLda, Index: rLda, Scale: 4}, rLda5)
	}
	if s.rows > 7 {
		LEAQ(Mem{Base: rA, Index: rLda3, Scale: 2}, rA7)
		ADDQ(rLda, rA7)
	}
}

// tileBody writes the code for exactly rows rows, from loading C to the return.
func tileBody(s isa, o order, rows int) {
	name := func(l string) string { return fmt.Sprintf("rows%d_%s", rows, l) }
	loadC(s, rows, name)
	LEAQ(Mem{Base: rNext}, rEnd)
	for i := 1; i < rows; i++ {
		ADDQ(rLdc, rEnd)
	}
	MOVQ(Mem{Base: rT, Disp: offFar}, rFar)
	MOVQ(Mem{Base: rT, Disp: offFarEnd}, rFarEnd)
	MOVQ(Mem{Base: rT, Disp: offK}, rK)
	MOVQ(Mem{Base: rT, Disp: offB}, rB)
	SUBQ(U8(unroll), rK)
	JLT(LabelRef(name("tail")))

	Label(name("loop"))
	prefetch(s)
	for u := range unroll {
		step(s, o, rows, u)
	}
	advanceA(o, rows, unroll)
	SUBQ(U8(unroll), rK)
	JGE(LabelRef(name("loop")))

	Label(name("tail"))
	ADDQ(U8(unroll), rK)
	JEQ(LabelRef(name("store")))
	Label(name("one"))
	step(s, o, rows, 0)
	ADDQ(rLdb, rB)
	advanceA(o, rows, 1)
	DECQ(rK)
	JNE(LabelRef(name("one")))

	Label(name("store"))
	storeC(s, rows, name)
	VZEROUPPER()
	RET()
}

// prefetch touches one row of the next tile of C and moves on; it stays on the last row when all are done. It also
// touches one far line.
func prefetch(s isa) {
	PREFETCHT0(Mem{Base: rNext})
	if s.lanes == 16 {
		PREFETCHT0(Mem{Base: rNext, Disp: 64})
	}
	ADDQ(rLdc, rNext)
	CMPQ(rNext, rEnd)
	CMOVQHI(rEnd, rNext)
	PREFETCHT1(Mem{Base: rFar})
	ADDQ(U8(64), rFar)
	CMPQ(rFar, rFarEnd)
	CMOVQHI(rFarEnd, rFar)
}

// step writes one k step, u steps after the pointer to A: 2 loads of B, and a broadcast and 2 FMAs a row. The pointer
// to B moves after each second step.
func step(s isa, o order, rows, u int) {
	b := []reg.VecPhysical{s.vec[2*s.rows], s.vec[2*s.rows+1]}
	for v := range 2 {
		VMOVUPS(strided(rB, u%2, 4*s.lanes*v, rLdb, nil, nil), b[v])
	}
	if u%2 == 1 {
		ADDQ(rLdb2, rB)
	}
	for i := range rows {
		x := s.vec[2*s.rows+2+i%2]
		VBROADCASTSS(elementA(o, i, u), x)
		for v := range 2 {
			VFMADD231PS(b[v], x, s.vec[2*i+v])
		}
	}
}

// elementA is the operand A[i, u] relative to the walking pointers.
func elementA(o order, i, u int) Mem {
	if o == kMajor {
		return strided(rA, u, 4*i, rLda, rLda3, nil)
	}
	if i >= 7 {
		return strided(rA7, i-7, 4*u, rLda, rLda3, rLda5)
	}
	return strided(rA, i, 4*u, rLda, rLda3, rLda5)
}

// strided is base + n·stride + disp for n 0..6, given registers with stride, 3·stride and (n = 5) 5·stride.
func strided(base reg.GPPhysical, n, disp int, s1, s3, s5 reg.Register) Mem {
	m := Mem{Base: base, Disp: disp}
	switch n {
	case 0:
	case 1, 2, 4:
		m.Index, m.Scale = s1, uint8(n)
	case 3, 6:
		m.Index, m.Scale = s3, uint8(n/3)
	case 5:
		m.Index, m.Scale = s5, 1
	}
	return m
}

// advanceA moves the pointers to A n k steps, 1 or unroll. Additions, because a scaled LEA would take a port from the
// FMAs.
func advanceA(o order, rows, n int) {
	if o == rowMajor {
		ADDQ(U8(4*n), rA)
		if rows > 7 {
			ADDQ(U8(4*n), rA7)
		}
		return
	}
	if n == unroll {
		ADDQ(rLda4, rA)
	} else {
		ADDQ(rLda, rA)
	}
}
