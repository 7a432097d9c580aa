package convert

import (
	"encoding/binary"
	"fmt"
	"math"
)

// widths are the bytes of an element of the types that weights are read in.
var widths = map[string]int{"F64": 8, "F32": 4, "F16": 2, "BF16": 2}

// stored are the types that weights are written in, by the names of train.dtype.
var stored = map[string]string{"fp64": "F64", "fp32": "F32", "bf16": "BF16"}

// torch are the names of torch_dtype.
var torch = map[string]string{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

// convert writes elements of one type as another into out, which has their room. A wider type keeps every value and
// every NaN's bits that fit; a narrower one rounds to the nearest, ties to even. A finite number that a narrower type
// has not is an error with its index.
func convert(out []byte, to string, in []byte, from string) error {
	switch {
	case to == from:
		copy(out, in)
		return nil
	case from == "BF16" && to == "F32":
		widen(out, in)
		return nil
	case from == "F32" && to == "BF16":
		return narrow(out, in)
	}
	wi, wo := widths[from], widths[to]
	for k := range len(in) / wi {
		x := load(in[k*wi:], from)
		if y := store(out[k*wo:], to, x); math.IsInf(y, 0) && !math.IsInf(x.value(), 0) {
			return cannotHold(k, x.value(), to)
		}
	}
	return nil
}

// widen is convert from bf16 to fp32, the way of nearly every published model: about ten times as fast.
func widen(out, in []byte) {
	for k := 0; k+1 < len(in); k += 2 {
		binary.LittleEndian.PutUint32(out[2*k:], uint32(binary.LittleEndian.Uint16(in[k:]))<<16)
	}
}

// narrow is convert from fp32 to bf16.
func narrow(out, in []byte) error {
	for k := 0; k+3 < len(in); k += 4 {
		bits := binary.LittleEndian.Uint32(in[k:])
		h := brain(bits)
		if h&0x7fff == 0x7f80 && bits&0x7fffffff != 0x7f800000 {
			return cannotHold(k/4, float64(math.Float32frombits(bits)), "BF16")
		}
		binary.LittleEndian.PutUint16(out[k/2:], h)
	}
	return nil
}

func cannotHold(k int, x float64, to string) error {
	return fmt.Errorf("element %d is %g, which %s cannot hold", k, x, to)
}

// element is a number, as fp32 bits when it is one: a NaN then keeps its bits.
type element struct {
	single bool
	bits   uint32
	double float64
}

func (e element) value() float64 {
	if e.single {
		return float64(math.Float32frombits(e.bits))
	}
	return e.double
}

func load(b []byte, from string) element {
	switch from {
	case "F64":
		return element{double: math.Float64frombits(binary.LittleEndian.Uint64(b))}
	case "F32":
		return element{single: true, bits: binary.LittleEndian.Uint32(b)}
	case "BF16":
		return element{single: true, bits: uint32(binary.LittleEndian.Uint16(b)) << 16}
	}
	return element{single: true, bits: half(binary.LittleEndian.Uint16(b))}
}

// store writes an element and gives the value that it has then.
func store(b []byte, to string, e element) float64 {
	switch to {
	case "F64":
		binary.LittleEndian.PutUint64(b, math.Float64bits(e.value()))
		return e.value()
	case "F32":
		bits := e.bits
		if !e.single {
			bits = math.Float32bits(float32(e.double))
		}
		binary.LittleEndian.PutUint32(b, bits)
		return float64(math.Float32frombits(bits))
	}
	bits := e.bits
	if !e.single {
		bits = odd(e.double)
	}
	h := brain(bits)
	binary.LittleEndian.PutUint16(b, h)
	return float64(math.Float32frombits(uint32(h) << 16))
}

// brain rounds fp32 bits to bf16, ties to even. A NaN stays one.
func brain(bits uint32) uint16 {
	low := bits & 0xffff
	h := uint16(bits >> 16)
	switch {
	case bits&0x7fffffff > 0x7f800000: // NaN
		if low != 0 {
			h |= 0x40
		}
	case low > 0x8000 || low == 0x8000 && h&1 == 1:
		h++
	}
	return h
}

// odd is x as fp32 bits, rounded to odd when it is not exact: rounding that once more to fewer bits gives what rounding
// x at once gives (Boldo and Melquiond, 2008).
func odd(x float64) uint32 {
	f := float32(x)
	bits := math.Float32bits(f)
	if math.IsNaN(x) || float64(f) == x {
		return bits
	}
	if math.Abs(float64(f)) > math.Abs(x) {
		bits--
	}
	return bits | 1
}

// half is an fp16 as fp32 bits: 1 sign, 5 exponent (bias 15), 10 fraction bits. Exact.
func half(h uint16) uint32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		return sign | math.Float32bits(float32(frac)*(1.0/(1<<24)))
	case 0x1f:
		return sign | 0x7f800000 | frac<<13
	}
	return sign | (exp+127-15)<<23 | frac<<13
}
