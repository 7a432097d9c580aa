// Package kernel is the numeric core: matrix products, elementwise functions and reductions on slices.
//
// The contract on bits: for one set of inputs every path (portable, AVX2, AVX-512) and every number of threads
// gives the same bits. A matrix product is one chain of multiply-adds per output element in ascending k, fused in
// float32 and never in float64, starting from zero or from the element's old value. A sum is 16 lanes (element i in
// lane i mod 16), folded 16→8→4→2→1. exp and log are our own. See docs/adr/0003.
package kernel

import (
	"os"

	"golang.org/x/sys/cpu"
)

// Path is an instruction set that the fp32 kernels can use.
type Path uint8

// The paths, slowest first. Each gives the same bits.
const (
	Portable Path = iota
	AVX2
	AVX512
)

// String is the name that PHALANX_KERNEL and the benchmarks use.
func (p Path) String() string { return [...]string{"portable", "avx2", "avx512"}[p] }

// Best is the fastest path this CPU has.
func Best() Path {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW:
		return AVX512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return AVX2
	}
	return Portable
}

// active is the path in use. It changes no bit, so it may be process-wide state.
var active = initial()

func initial() Path {
	best := Best()
	for p := Portable; p <= best; p++ {
		if os.Getenv("PHALANX_KERNEL") == p.String() {
			return p
		}
	}
	return best
}

// Active is the path in use.
func Active() Path { return active }

// Use selects a path and returns the one before. Not to be called while kernels run; tests and benchmarks only.
func Use(p Path) Path {
	before := active
	active = min(p, Best())
	return before
}
