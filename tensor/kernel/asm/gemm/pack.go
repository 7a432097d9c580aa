package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packRowsFunc writes the copy of rows rows of cols values (1..vecs·lanes) to a panel; the rest of each row of the
// panel, up to vecs·lanes values, is filled with zeros. Strides in elements. Rows of the panel may overlap what is
// filled up, because they are written in ascending order.
func packRowsFunc(s isa, vecs int) {
	TEXT(fmt.Sprintf("packRows%d%s", vecs, s.name), NOSPLIT, "func(dst *float32, ldd int, src *float32, lds, rows, cols int)")
	Doc(fmt.Sprintf("packRows%d%s copies rows × cols values, cols 1..%d, and fills up each row with zeros.", vecs, s.name, vecs*s.lanes))
	Pragma("noescape")
	dst, ldd, src, lds, n, cols, tmp := reg.RDI, reg.RDX, reg.RSI, reg.RBX, reg.RCX, reg.R8, reg.RAX
	params(dst, ldd, src, lds, n, cols)
	SHLQ(U8(2), ldd)
	SHLQ(U8(2), lds)
	masks := []reg.Register{reg.K1, reg.K2}
	if s.lanes == 16 {
		s.setMask(cols, tmp)
	} else {
		masks = []reg.Register{s.vec[14], s.vec[15]}
		maskLanes(cols, tmp, s.vec[14], s.vec[15])
	}
	Label("loop")
	for v := range vecs {
		s.maskedLoad(Mem{Base: src, Disp: 4 * s.lanes * v}, masks[v], s.vec[v])
	}
	for v := range vecs {
		VMOVUPS(s.vec[v], Mem{Base: dst, Disp: 4 * s.lanes * v})
	}
	ADDQ(lds, src)
	ADDQ(ldd, dst)
	DECQ(n)
	JNE(LabelRef("loop"))
	VZEROUPPER()
	RET()
}

// packTransFunc writes the transposing copy of 8 rows into 8 columns of a panel, 8×8 blocks at a time:
// dst[k·ldd + j] = src[j·lds + k] for j 0..7, k 0..8·blocks−1. AVX2 serves both paths: 256-bit shuffles have two ports.
func packTransFunc() {
	TEXT("packTransAVX2", NOSPLIT, "func(dst *float32, ldd int, src *float32, lds, blocks int)")
	Doc("packTransAVX2 transposes 8 rows of 8·blocks values into 8 columns of a panel.")
	Pragma("noescape")
	dst, ldd, ldd3, n := reg.RDI, reg.RDX, reg.R8, reg.RCX
	src, src4, lds, lds3 := reg.RSI, reg.RAX, reg.RBX, reg.R9
	params(dst, ldd, src, lds, n)
	SHLQ(U8(2), ldd)
	SHLQ(U8(2), lds)
	LEAQ(Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	LEAQ(Mem{Base: src, Index: lds, Scale: 4}, src4)
	Label("loop")
	for half := range 2 {
		for j := range 4 {
			VMOVUPS(strided(src, j, 16*half, lds, lds3, nil), xmm[j])
			VINSERTF128(U8(1), strided(src4, j, 16*half, lds, lds3, nil), avx2.vec[j], avx2.vec[j])
		}
		for k, y := range transpose4(4 + 4*half) {
			VMOVUPS(y, strided(dst, k, 0, ldd, ldd3, nil))
		}
		LEAQ(Mem{Base: dst, Index: ldd, Scale: 4}, dst)
	}
	ADDQ(U8(32), src)
	ADDQ(U8(32), src4)
	DECQ(n)
	JNE(LabelRef("loop"))
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
