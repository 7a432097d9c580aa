package collective

import (
	"fmt"
	"math"

	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

// OpError says that a program asked for an operation that no group can do. It is the program's fault.
type OpError struct {
	Op      string // the operation in words
	Problem string // found, expected
}

func (e *OpError) Error() string { return fmt.Sprintf("%s: %s", e.Op, e.Problem) }

// CheckOp says what is wrong with an operation of member rank of a group of size members; nil if nothing is.
func CheckOp(op *nn.Op, size, rank int) error {
	for _, check := range [...]func() string{
		func() string { return checkWhat(op) },
		func() string { return checkSite(op) },
		func() string { return checkLengths(op, size, rank) },
	} {
		if problem := check(); problem != "" {
			return &OpError{Op: describe(op), Problem: problem}
		}
	}
	return nil
}

// describe does not trust the fields as nn.Op.String does.
func describe(op *nn.Op) string {
	n := OpName{Axis: op.Axis, Kind: op.Kind, Reduce: op.Reduce, Tag: op.Tag, DType: op.DType, Site: op.Site}
	n.Elements = len(op.In) / max(op.DType.Size(), 1)
	return n.String()
}

func checkWhat(op *nn.Op) string {
	switch {
	case op.Kind < nn.AllReduce || op.Kind > nn.Get:
		return fmt.Sprintf("kind %d is unknown, expected all_reduce, reduce_scatter, all_gather, exchange, put or get", op.Kind)
	case op.Tag == 0 || op.Tag > tagMax:
		return fmt.Sprintf("tag %d does not fit a message name, expected 1 to %d", op.Tag, tagMax)
	case op.Reduce > nn.Max:
		return fmt.Sprintf("reduction %d is unknown, expected sum or max", op.Reduce)
	case op.DType.Size() == 0:
		return fmt.Sprintf("element type %s is unknown", op.DType)
	case op.Kind <= nn.ReduceScatter && !reducible(op.DType, op.Reduce):
		return fmt.Sprintf("no %s of %s: sum takes F32, F64, I32, I64; max takes U8 and BOOL too", op.Reduce, op.DType)
	}
	return ""
}

func reducible(d tensor.DType, how nn.ReduceKind) bool {
	switch d {
	case tensor.F32, tensor.F64, tensor.I32, tensor.I64:
		return true
	case tensor.U8, tensor.Bool:
		return how == nn.Max
	}
	return false
}

// checkSite sees to it that the site survives in a header.
func checkSite(op *nn.Op) string {
	s := op.Site
	for _, f := range [...]struct {
		name             string
		found, low, high int
	}{
		{"step", s.Step, 0, math.MaxUint32},
		{"microbatch", s.Microbatch, 0, math.MaxUint16},
		{"phase", int(s.Phase), 1, phaseMax},
		{"depth", s.Depth, 0, depthMax},
		{"layer", s.Layer, -1, messages.NoLayer - 1},
	} {
		if f.found < f.low || f.found > f.high {
			return fmt.Sprintf("%s %d does not fit a message name, expected %d to %d", f.name, f.found, f.low, f.high)
		}
	}
	return ""
}

// checkLengths: the whole value is cut into pieces as piece does; In and Out are wholes or this member's piece.
func checkLengths(op *nn.Op, size, rank int) string {
	unit := op.DType.Size()
	in, out := len(op.In), len(op.Out)
	if in%unit != 0 || out%unit != 0 {
		return fmt.Sprintf("In has %d and Out %d bytes, expected multiples of %d", in, out, unit)
	}
	switch {
	case op.Kind == nn.Put && (len(op.To) != 1 || len(op.From) != 0), op.Kind == nn.Get && (len(op.From) != 1 || len(op.To) != 0):
		return fmt.Sprintf("it has %d parts to send and %d to get, expected one of a put to send and one of a get to get", len(op.To), len(op.From))
	case op.Kind >= nn.Exchange:
		return checkParts(op, size, rank)
	}
	whole, want, found, which := in, in, out, "Out"
	if problem := checkCuts(op, size); problem != "" {
		return problem
	}
	switch op.Kind {
	case nn.ReduceScatter:
		want = pieceLen(op.Cuts, in, unit, size, rank)
	case nn.AllGather:
		whole, want, found, which = out, pieceLen(op.Cuts, out, unit, size, rank), in, "In"
	}
	if whole/unit > math.MaxUint32 {
		return fmt.Sprintf("%d elements do not fit a message name, expected at most %d", whole/unit, math.MaxUint32)
	}
	if found != want {
		return fmt.Sprintf("%s has %d bytes, expected %d: member %d of %d of a value of %d bytes", which, found, want, rank, size, whole)
	}
	return ""
}

// checkParts: the parts of an exchange cover In and Out, and no other member is named twice on a side.
func checkParts(op *nn.Op, size, rank int) string {
	for _, side := range [...]struct {
		name  string
		parts []nn.Part
		bytes int
	}{{"In", op.To, len(op.In)}, {"Out", op.From, len(op.Out)}} {
		sum, seen := 0, map[int]bool{}
		for _, p := range side.parts {
			if p.Member < 0 || p.Member >= size || p.Member == rank || seen[p.Member] || p.Bytes < 0 || p.Bytes%op.DType.Size() != 0 {
				return fmt.Sprintf("a part of %s is %d bytes of member %d, expected whole elements, each other member of %d at most once", side.name, p.Bytes, p.Member, size)
			}
			seen[p.Member] = true
			sum += p.Bytes
		}
		if sum != side.bytes {
			return fmt.Sprintf("the parts of %s have %d bytes, it has %d", side.name, sum, side.bytes)
		}
	}
	return ""
}

// checkCuts: cuts are those of the whole value, in order, between elements.
func checkCuts(op *nn.Op, size int) string {
	whole := len(op.In)
	switch {
	case op.Cuts == nil:
		return ""
	case op.Kind == nn.AllGather:
		whole = len(op.Out)
	case op.Kind != nn.ReduceScatter:
		return "it has cuts, which go with reduce_scatter and all_gather"
	}
	if len(op.Cuts) != size+1 || op.Cuts[0] != 0 || op.Cuts[size] != whole {
		return fmt.Sprintf("its cuts are %v, expected %d from 0 to %d bytes", op.Cuts, size+1, whole)
	}
	for j, at := range op.Cuts {
		if at%op.DType.Size() != 0 || j > 0 && at < op.Cuts[j-1] {
			return fmt.Sprintf("cut %d is %d bytes, expected a multiple of %d, and cuts that never fall", j, at, op.DType.Size())
		}
	}
	return ""
}

// piece is the byte range of member j's piece of a value of n bytes: between its cuts, or without cuts equal pieces of
// whole elements, the last ones shorter or empty if the elements do not divide.
func piece(cuts []int, n, unit, size, j int) (from, to int) {
	if cuts != nil {
		return cuts[j], cuts[j+1]
	}
	each := (n/unit + size - 1) / size * unit
	return min(n, j*each), min(n, (j+1)*each)
}

func pieceLen(cuts []int, n, unit, size, j int) int {
	from, to := piece(cuts, n, unit, size, j)
	return to - from
}
