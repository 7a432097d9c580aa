package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is the instruction set being written.
type isa string

const (
	avx512 isa = "AVX512"
	avx2   isa = "AVX2"
)

func (s isa) lower() string { return strings.ToLower(string(s)) }

// bytes is the size of a vector register.
func (s isa) bytes() int {
	if s == avx512 {
		return 64
	}
	return 32
}

// Sixteen elements make one turn of a loop: one vector of AVX-512, two halves of AVX2.
func (s isa) halves() int { return 64 / s.bytes() }

// emitter adds to avo's context what the kernels share: pointers walked by one index, hoisted constants, the loop
// with its masked tail. A kernel's body is emitted once per half and once more, masked, for the tail.
type emitter struct {
	*build.Context
	isa  isa
	data map[uint32]operand.Mem // constants of the file, by bits

	hoisted map[uint32]reg.VecVirtual // constants of the function in registers (AVX-512)
	index   reg.GPVirtual             // byte offset of the turn
	n       reg.GPVirtual             // elements left
	half    int                       // half being emitted
	tail    bool                      // emitting the masked tail
	k       reg.OpmaskVirtual         // tail mask, AVX-512
	mask    reg.VecVirtual            // tail mask of this half, AVX2
}

// value gives an operand anew at each use.
type value func() operand.Op

// vector gives a register that is not to be written, anew at each use.
type vector func() reg.VecVirtual

// begin starts func vec<Name><ISA>(params, n int).
func (e *emitter) begin(name, params, doc string) {
	fn := "vec" + name + string(e.isa)
	e.Function(fn)
	e.Attributes(attr.NOSPLIT)
	e.Pragma("noescape")
	e.SignatureExpr("func(" + params + ", n int)")
	e.Doc(fn + " is " + doc)
	e.hoisted = map[uint32]reg.VecVirtual{}
	e.index, e.n = e.GP64(), e.GP64()
	e.Load(e.Param("n"), e.n)
	e.XORQ(e.index, e.index)
}

// end leaves the function. VZEROUPPER spares later SSE code the cost of dirty upper halves.
func (e *emitter) end() {
	e.VZEROUPPER()
	e.RET()
}

// vec is a new vector register.
func (e *emitter) vec() reg.VecVirtual {
	if e.isa == avx512 {
		return e.ZMM()
	}
	return e.YMM()
}

// ptr loads a pointer argument.
func (e *emitter) ptr(name string) reg.GPVirtual {
	p := e.GP64()
	e.Load(e.Param(name), p)
	return p
}

// scalar is an argument in all lanes: hoisted with AVX-512, broadcast at each use with AVX2's few registers.
func (e *emitter) scalar(name string) vector {
	b, err := e.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return e.broadcast(b.Addr)
}

// broadcast is the float32 at m in all lanes.
func (e *emitter) broadcast(m operand.Mem) vector {
	get := func() reg.VecVirtual {
		v := e.vec()
		e.VBROADCASTSS(m, v)
		return v
	}
	if e.isa == avx512 {
		v := get()
		return func() reg.VecVirtual { return v }
	}
	return get
}

// bits is a 32-bit constant in all lanes: a register with AVX-512, memory with AVX2.
func (e *emitter) bits(b uint32) value {
	m := e.constant(b)
	if e.isa == avx2 {
		return func() operand.Op { return m }
	}
	v, ok := e.hoisted[b]
	if !ok {
		v = e.vec()
		e.VBROADCASTSS(m, v)
		e.hoisted[b] = v
	}
	return func() operand.Op { return v }
}

// float is a float32 constant in all lanes.
func (e *emitter) float(f float32) value { return e.bits(math.Float32bits(f)) }

// floatReg is the same where the instruction wants a register.
func (e *emitter) floatReg(f float32) vector {
	c := e.float(f)
	return func() reg.VecVirtual {
		if v, ok := c().(reg.VecVirtual); ok {
			return v
		}
		return e.copyOf(c())
	}
}

// copyOf is a new register with the contents of op.
func (e *emitter) copyOf(op operand.Op) reg.VecVirtual {
	v := e.vec()
	if _, ok := op.(operand.Mem); ok {
		e.VMOVUPS(op, v)
	} else {
		e.VMOVAPS(op, v)
	}
	return v
}

// constant is where the file keeps b: eight copies for AVX2's memory operands, one for a broadcast.
func (e *emitter) constant(b uint32) operand.Mem {
	if e.data == nil {
		e.data = map[uint32]operand.Mem{}
	}
	m, ok := e.data[b]
	if !ok {
		m = operand.NewDataAddr(operand.NewStaticSymbol(fmt.Sprintf("c%08x", b)), 0)
		e.data[b] = m
	}
	return m
}
