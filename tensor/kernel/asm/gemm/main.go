// Command gemm writes the fp32 matrix-product assembly of package kernel: tiles, packing and the FMA peak loop.
//
// Run it through go:generate in tensor/kernel/gemm.go. Every function is NOSPLIT with an empty frame, ends in
// VZEROUPPER and is short (a few µs), because Go cannot preempt assembly.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// isa is what the generators need to know of an instruction set.
type isa struct {
	name  string // suffix of the Go names
	lanes int    // float32 lanes of a vector
	mr    int    // most rows of a tile; mr·2 accumulators, 2 of B and 2 broadcasts must fit the registers
	vec   []reg.VecPhysical
}

var (
	avx2 = isa{name: "AVX2", lanes: 8, mr: 6, vec: []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15}}
	avx512 = isa{name: "AVX512", lanes: 16, mr: 14, vec: []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}}
)

func main() {
	ConstraintExpr("amd64")
	for _, s := range []isa{avx2, avx512} {
		tileFunc(s, rowMajor)
		tileFunc(s, kMajor)
		packRowsFunc(s)
		packStripsFunc(s)
		peakFunc(s)
	}
	packTransFunc()
	unpackFunc()
	maskTable()
	Generate()
}
