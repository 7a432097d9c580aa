package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packRowsFunc writes the copy of rows rows of cols values (1..2·lanes) to a panel that is 2·lanes wide; the rest of
// each row of the panel is filled with zeros. lds is the distance of the rows of src in elements.
func packRowsFunc(s isa) {
	TEXT("packRows"+s.name, NOSPLIT, "func(dst *float32, src *float32, lds, rows, cols int)")
	Doc(fmt.Sprintf("packRows%s copies rows × cols values, cols 1..%d, to rows of %[2]d filled up with zeros.", s.name, 2*s.lanes))
	Pragma("noescape")
	dst, src, lds, n, cols, tmp := reg.RDI, reg.RSI, reg.RBX, reg.RCX, reg.R8, reg.RAX
	params(dst, src, lds, n, cols)
	SHLQ(U8(2), lds)
	masks := s.packMasks(cols, tmp)
	Label("loop")
	for v := range 2 {
		s.maskedLoad(Mem{Base: src, Disp: 4 * s.lanes * v}, masks[v], s.vec[v])
	}
	for v := range 2 {
		VMOVUPS(s.vec[v], Mem{Base: dst, Disp: 4 * s.lanes * v})
	}
	ADDQ(lds, src)
	ADDQ(U32(8*s.lanes), dst)
	DECQ(n)
	JNE(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// packMasks prepares the masks for cols columns and names them; AVX2 keeps them in its last two vectors.
func (s isa) packMasks(cols, tmp reg.GPPhysical) []reg.Register {
	if s.lanes == 16 {
		s.setMask(cols, tmp)
		return []reg.Register{reg.K1, reg.K2}
	}
	maskLanes(cols, tmp, s.vec[14], s.vec[15])
	return []reg.Register{s.vec[14], s.vec[15]}
}

// packStripsFunc writes the copy of rows rows to strips strips side by side, row after row, so that each line of src
// is read once: rows of a power-of-two length all fall on the same few sets of a cache and do not stay there. A strip
// has s.mr columns and takes one vector for each row, filled up with zeros. The last strip has cols columns. distance
// and lds in elements.
func packStripsFunc(s isa) {
	TEXT("packStrips"+s.name, NOSPLIT, "func(dst *float32, distance int, src *float32, lds, rows, strips, cols int)")
	Doc(fmt.Sprintf("packStrips%s copies rows to strips of %d columns that are distance apart; the last has cols columns.", s.name, s.mr))
	Pragma("noescape")
	dst, distance, src, lds, n, strips, cols := reg.RDI, reg.RDX, reg.RSI, reg.RBX, reg.RCX, reg.R8, reg.R9
	to, from, left := reg.R10, reg.R11, reg.R12
	params(dst, distance, src, lds, n, strips, cols)
	SHLQ(U8(2), distance)
	SHLQ(U8(2), lds)
	full, part := s.stripMasks(cols, to)
	DECQ(strips)
	Label("row")
	MOVQ(dst, to)
	MOVQ(src, from)
	MOVQ(strips, left)
	TESTQ(left, left)
	JEQ(LabelRef("last"))
	Label("strip")
	s.maskedLoad(Mem{Base: from}, full, s.vec[0])
	VMOVUPS(s.vec[0], Mem{Base: to})
	ADDQ(U8(4*s.mr), from)
	ADDQ(distance, to)
	DECQ(left)
	JNE(LabelRef("strip"))
	Label("last")
	s.maskedLoad(Mem{Base: from}, part, s.vec[0])
	VMOVUPS(s.vec[0], Mem{Base: to})
	ADDQ(lds, src)
	ADDQ(U8(4*s.lanes), dst)
	DECQ(n)
	JNE(LabelRef("row"))
	VZEROUPPER()
	RET()
}

// stripMasks prepares masks for a strip's s.mr columns and for cols columns.
func (s isa) stripMasks(cols, tmp reg.GPPhysical) (full, part reg.Register) {
	if s.lanes == 16 {
		s.setMask(cols, tmp)
		MOVL(U32(1<<s.mr-1), tmp.As32())
		KMOVW(tmp.As32(), reg.K2)
		return reg.K2, reg.K1
	}
	maskLanes(cols, tmp, s.vec[14], s.vec[15])
	VMOVUPS(Mem{Base: tmp, Disp: 64 - 4*s.mr}, s.vec[15])
	return s.vec[15], s.vec[14]
}

// transposer walks over 8 rows of src, 4 columns at a time, and over the rows of dst.
type transposer struct{ dst, ldd, ldd3, src, src4, lds, lds3, n, cols reg.GPPhysical }

// newTransposer loads its parameters: dst, ldd, src, lds, n and, if there is a sixth, cols. Strides in elements.
func newTransposer(withCols bool) transposer {
	t := transposer{dst: reg.RDI, ldd: reg.RDX, ldd3: reg.R8, src: reg.RSI, src4: reg.RAX, lds: reg.RBX, lds3: reg.R9,
		n: reg.RCX, cols: reg.R10}
	params(t.dst, t.ldd, t.src, t.lds, t.n)
	if withCols {
		Load(ParamIndex(5), t.cols)
	}
	SHLQ(U8(2), t.ldd)
	SHLQ(U8(2), t.lds)
	LEAQ(Mem{Base: t.ldd, Index: t.ldd, Scale: 2}, t.ldd3)
	LEAQ(Mem{Base: t.lds, Index: t.lds, Scale: 2}, t.lds3)
	LEAQ(Mem{Base: t.src, Index: t.lds, Scale: 4}, t.src4)
	return t
}

// columns loads 4 columns, at disp bytes, of the 8 rows and gives them as vectors.
func (t transposer) columns(disp int) []reg.VecPhysical {
	for j := range 4 {
		VMOVUPS(strided(t.src, j, disp, t.lds, t.lds3, nil), xmm[j])
		VINSERTF128(U8(1), strided(t.src4, j, disp, t.lds, t.lds3, nil), avx2.vec[j], avx2.vec[j])
	}
	return transpose4(4)
}

// packTransFunc writes the transposing copy of 8 rows into 8 columns of a panel: dst[k·ldd + j] = src[j·lds + k] for
// j 0..7, k 0..8·blocks−1. AVX2 serves both paths: 256-bit shuffles have two ports.
func packTransFunc() {
	TEXT("packTransAVX2", NOSPLIT, "func(dst *float32, ldd int, src *float32, lds, blocks int)")
	Doc("packTransAVX2 transposes 8 rows of 8·blocks values into 8 columns of a panel.")
	Pragma("noescape")
	t := newTransposer(false)
	Label("loop")
	for half := range 2 {
		for k, y := range t.columns(16 * half) {
			VMOVUPS(y, strided(t.dst, k, 0, t.ldd, t.ldd3, nil))
		}
		LEAQ(Mem{Base: t.dst, Index: t.ldd, Scale: 4}, t.dst)
	}
	ADDQ(U8(32), t.src)
	ADDQ(U8(32), t.src4)
	DECQ(t.n)
	JNE(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// unpackFunc writes the transposing copy of a tile to C: dst[q·ldd + r] = src[r·lds + q] for q 0..rows−1 and
// r 0..cols−1. It reads src for r 0..7 and for q up to the next multiple of 4.
func unpackFunc() {
	TEXT("unpackTransAVX2", NOSPLIT, "func(dst *float32, ldd int, src *float32, lds, rows, cols int)")
	Doc("unpackTransAVX2 transposes 8 rows, of which the first cols count, into cols columns (1..8) and rows rows.")
	Pragma("noescape")
	t, mask := newTransposer(true), avx2.vec[14]
	maskLanes(t.cols, reg.R11, mask, avx2.vec[15])
	Label("loop")
	for _, y := range t.columns(0) {
		VMASKMOVPS(y, mask, Mem{Base: t.dst})
		DECQ(t.n)
		JEQ(LabelRef("done"))
		ADDQ(t.ldd, t.dst)
	}
	ADDQ(U8(16), t.src)
	ADDQ(U8(16), t.src4)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

var xmm = []reg.VecPhysical{reg.X0, reg.X1, reg.X2, reg.X3}

// transpose4 transposes the 4×4 blocks in each half of Y0..Y3 and names the four results; it uses Y[t..t+3] too.
func transpose4(t int) []reg.VecPhysical {
	y := avx2.vec
	VUNPCKLPS(y[1], y[0], y[t])
	VUNPCKHPS(y[1], y[0], y[t+1])
	VUNPCKLPS(y[3], y[2], y[t+2])
	VUNPCKHPS(y[3], y[2], y[t+3])
	VUNPCKLPD(y[t+2], y[t], y[0])
	VUNPCKHPD(y[t+2], y[t], y[1])
	VUNPCKLPD(y[t+3], y[t+1], y[2])
	VUNPCKHPD(y[t+3], y[t+1], y[3])
	return y[:4]
}

// params loads the parameters in their order.
func params(to ...reg.GPPhysical) {
	for i, r := range to {
		Load(ParamIndex(i), r)
	}
}
