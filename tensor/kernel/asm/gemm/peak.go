package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peakAccumulators is the number of independent chains: above latency 5 × 2 ports, below the 16 AVX2 registers.
const peakAccumulators = 12

// peakFunc writes iters rounds of 12 independent FMAs on registers that hold zeros.
func peakFunc(s isa) {
	TEXT("peak"+s.name, NOSPLIT, "func(iters int)")
	Doc(fmt.Sprintf("peak%s runs iters rounds of %d independent FMAs of %d lanes; iters ≥ 1.", s.name, peakAccumulators, s.lanes))
	n := reg.RCX
	Load(Param("iters"), n)
	for _, x := range s.vec[:peakAccumulators+2] {
		s.zero(x)
	}
	Label("loop")
	for i := range peakAccumulators {
		VFMADD231PS(s.vec[peakAccumulators], s.vec[peakAccumulators+1], s.vec[i])
	}
	DECQ(n)
	JNE(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
