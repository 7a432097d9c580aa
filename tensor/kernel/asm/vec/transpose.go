package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose writes the move of a strip of 16 columns, 16 rows a turn in four blocks of 8×8: a turn reads and
// writes whole cache lines, so that strides that are powers of two, whose lines share a cache set, do not hurt.
func transpose(e *emitter) {
	e.begin("Transpose", "dst, src *float32, dstStride, srcStride int",
		"the transpose of n rows (a multiple of 16) by 16 columns; strides in elements.")
	dst, src, ds, ss := e.ptr("dst"), e.ptr("src"), e.ptr("dstStride"), e.ptr("srcStride")
	e.SHLQ(operand.Imm(2), ds)
	e.SHLQ(operand.Imm(2), ss)
	ds3, ss3 := e.times3(ds), e.times3(ss)
	e.SUBQ(operand.Imm(16), e.n)
	e.JL(operand.LabelRef("done"))
	e.Label("turn")
	low, high, to := src, e.GP64(), e.GP64()
	e.LEAQ(operand.Mem{Base: src, Index: ss, Scale: 8}, high)
	e.MOVQ(dst, to)
	for column := range 2 {
		for row := range 2 {
			from := []reg.GPVirtual{low, high}[row]
			e.block(from, ss, ss3, 32*column, to, ds, ds3, 32*row)
		}
		if column == 0 {
			e.LEAQ(operand.Mem{Base: to, Index: ds, Scale: 8}, to)
		}
	}
	e.LEAQ(operand.Mem{Base: high, Index: ss, Scale: 8}, src)
	e.ADDQ(operand.Imm(64), dst)
	e.SUBQ(operand.Imm(16), e.n)
	e.JGE(operand.LabelRef("turn"))
	e.Label("done")
	e.end()
}

func (e *emitter) times3(r reg.GPVirtual) reg.GPVirtual {
	t := e.GP64()
	e.LEAQ(operand.Mem{Base: r, Index: r, Scale: 2}, t)
	return t
}

// block moves 8×8: rows i and i+4 share a register, so that half of the shuffles become loads.
func (e *emitter) block(src, ss, ss3 reg.GPVirtual, srcAt int, dst, ds, ds3 reg.GPVirtual, dstAt int) {
	src4, dst4 := e.GP64(), e.GP64()
	e.LEAQ(operand.Mem{Base: src, Index: ss, Scale: 4, Disp: srcAt}, src4)
	e.LEAQ(operand.Mem{Base: dst, Index: ds, Scale: 4, Disp: dstAt}, dst4)
	for half := range 2 {
		var r [4]reg.VecVirtual
		for i := range r {
			r[i] = e.YMM()
			e.VBROADCASTF128(row(src, ss, ss3, i, srcAt+16*half), r[i])
			e.VINSERTF128(operand.Imm(1), row(src4, ss, ss3, i, 16*half), r[i], r[i])
		}
		to, at := dst, dstAt
		if half == 1 {
			to, at = dst4, 0
		}
		for i, y := range e.quarter(r) {
			e.VMOVUPS(y, row(to, ds, ds3, i, at))
		}
	}
}

// quarter transposes 4×4 in each half of four registers.
func (e *emitter) quarter(r [4]reg.VecVirtual) (y [4]reg.VecVirtual) {
	t := [4]reg.VecVirtual{e.YMM(), e.YMM(), e.YMM(), e.YMM()}
	e.VUNPCKLPS(r[1], r[0], t[0])
	e.VUNPCKHPS(r[1], r[0], t[1])
	e.VUNPCKLPS(r[3], r[2], t[2])
	e.VUNPCKHPS(r[3], r[2], t[3])
	for i := range y {
		y[i] = e.YMM()
		low, pick := i/2, operand.Imm([]uint64{0x44, 0xee}[i%2])
		e.VSHUFPS(pick, t[low+2], t[low], y[i])
	}
	return y
}

// row is place i (0 … 3) of rows a stride apart.
func row(base, stride, stride3 reg.GPVirtual, i, at int) operand.Mem {
	switch i {
	case 0:
		return operand.Mem{Base: base, Disp: at}
	case 3:
		return operand.Mem{Base: base, Index: stride3, Scale: 1, Disp: at}
	}
	return operand.Mem{Base: base, Index: stride, Scale: uint8(i), Disp: at}
}
