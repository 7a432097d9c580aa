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

// body is one of the tiles in a tile function: exactly rows rows and, up to the mask, vecs vectors of columns.
type body struct {
	isa
	order
	rows, vecs int
}

// label is the name of a place in the body.
func (b body) label(place string) string { return fmt.Sprintf("rows%dx%d%s", b.rows, b.vecs, place) }

// acc is the accumulator of vector v of row i.
func (b body) acc(i, v int) reg.VecPhysical { return b.vec[i*b.vecs+v] }

// spare are the four vectors that are never accumulators.
func (s isa) spare(i int) reg.VecPhysical { return s.vec[2*s.mr+i] }

// tileFunc writes the function that computes one tile: C[rows,cols] = or += A·B with rows 1..s.mr, cols 1..2·lanes.
// Tiles of up to lanes columns do half the work.
func tileFunc(s isa, o order) {
	TEXT(fmt.Sprintf("tile%s%s", o, s.name), NOSPLIT, "func(t *byte)")
	Doc(fmt.Sprintf("tile%s%s computes the tile (*tile[float32])(t): rows 1..%d, cols 1..%d.", o, s.name, s.mr, 2*s.lanes))
	Pragma("noescape")
	loadParams(s, o)
	CMPQ(rK, U8(s.lanes))
	JLE(LabelRef("narrow"))
	for _, vecs := range []int{2, 1} {
		if vecs == 1 {
			Label("narrow")
		}
		for r := s.mr; r > 1; r-- {
			CMPQ(rEnd, U8(r))
			JEQ(LabelRef(body{s, o, r, vecs}.label("")))
		}
		for r := 1; r <= s.mr; r++ {
			Label(body{s, o, r, vecs}.label(""))
			body{s, o, r, vecs}.write()
		}
	}
}

// loadParams fills the general registers and the column masks. Afterwards rEnd holds the number of rows, rK of columns.
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
	if s.mr > 5 {
		LEAQ(Mem{Base: rLda, Index: rLda, Scale: 4}, rLda5)
	}
	if s.mr > 7 {
		LEAQ(Mem{Base: rA, Index: rLda3, Scale: 2}, rA7)
		ADDQ(rLda, rA7)
	}
}

// write is the code from loading C to the return.
func (b body) write() {
	b.loadC()
	LEAQ(Mem{Base: rNext}, rEnd)
	for i := 1; i < b.rows; i++ {
		ADDQ(rLdc, rEnd)
	}
	MOVQ(Mem{Base: rT, Disp: offFar}, rFar)
	MOVQ(Mem{Base: rT, Disp: offFarEnd}, rFarEnd)
	MOVQ(Mem{Base: rT, Disp: offK}, rK)
	MOVQ(Mem{Base: rT, Disp: offB}, rB)
	SUBQ(U8(unroll), rK)
	JLT(LabelRef(b.label("tail")))

	Label(b.label("loop"))
	b.prefetch()
	for u := range unroll {
		b.step(u)
	}
	b.advanceA(unroll)
	SUBQ(U8(unroll), rK)
	JGE(LabelRef(b.label("loop")))

	Label(b.label("tail"))
	ADDQ(U8(unroll), rK)
	JEQ(LabelRef(b.label("store")))
	Label(b.label("one"))
	b.step(0)
	ADDQ(rLdb, rB)
	b.advanceA(1)
	DECQ(rK)
	JNE(LabelRef(b.label("one")))

	Label(b.label("store"))
	b.storeC()
	VZEROUPPER()
	RET()
}

// prefetch touches one row of the next tile of C and moves on; it stays on the last row when all are done. It also
// touches one far line.
func (b body) prefetch() {
	for at := 0; at < 4*b.lanes*b.vecs; at += 64 {
		PREFETCHT0(Mem{Base: rNext, Disp: at})
	}
	ADDQ(rLdc, rNext)
	CMPQ(rNext, rEnd)
	CMOVQHI(rEnd, rNext)
	PREFETCHT1(Mem{Base: rFar})
	ADDQ(U8(64), rFar)
	CMPQ(rFar, rFarEnd)
	CMOVQHI(rFarEnd, rFar)
}

// step writes one k step, u steps after the pointer to A: loads of B, and a broadcast and FMAs for each row. The pointer
// to B moves after each second step.
func (b body) step(u int) {
	for v := range b.vecs {
		VMOVUPS(strided(rB, u%2, 4*b.lanes*v, rLdb, nil, nil), b.spare(v))
	}
	if u%2 == 1 {
		ADDQ(rLdb2, rB)
	}
	for i := range b.rows {
		x := b.spare(2 + i%2)
		VBROADCASTSS(b.elementA(i, u), x)
		for v := range b.vecs {
			VFMADD231PS(b.spare(v), x, b.acc(i, v))
		}
	}
}

// elementA is the operand A[i, u] relative to the walking pointers.
func (b body) elementA(i, u int) Mem {
	switch {
	case b.order == kMajor:
		return strided(rA, u, 4*i, rLda, rLda3, nil)
	case i >= 7:
		return strided(rA7, i-7, 4*u, rLda, rLda3, rLda5)
	}
	return strided(rA, i, 4*u, rLda, rLda3, rLda5)
}

// advanceA moves the pointers to A n k steps, 1 or unroll. Additions, because a scaled LEA would take a port from the
// FMAs.
func (b body) advanceA(n int) {
	switch {
	case b.order == kMajor && n == unroll:
		ADDQ(rLda4, rA)
	case b.order == kMajor:
		ADDQ(rLda, rA)
	default:
		ADDQ(U8(4*n), rA)
		if b.rows > 7 {
			ADDQ(U8(4*n), rA7)
		}
	}
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
