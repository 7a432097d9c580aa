package oracle

import (
	"fmt"
	"math"

	"phalanx/nn"
)

// joinAll joins the parts [cp][tp] of a quantity: first over the tensor-parallel ranks, then over the context-parallel
// ones, each slot to its position.
func joinAll(per [][]nn.Observation) (Value, error) {
	locals := make([]nn.Observation, len(per))
	for cp, parts := range per {
		var err error
		if locals[cp], err = joinTP(parts); err != nil {
			return Value{}, err
		}
	}
	first := locals[0]
	v := Value{R: first.R, C: first.C, Data: first.Values, Exact: first.Exact}
	switch {
	case first.Shape != nn.Plain && !first.Frame.Whole():
		return spread(first, locals), nil
	case first.Layout&nn.CPLocal != 0:
		v.Data = added(locals)
		return v, nil
	}
	return v, sameBits("cp", locals)
}

// joinTP joins the parts of one context-parallel rank.
func joinTP(parts []nn.Observation) (nn.Observation, error) {
	out := parts[0]
	switch {
	case out.Layout&nn.SPShard != 0 && out.Shape == nn.Plain:
		out.Values = added(parts)
	case out.Cols == nn.TPShard, out.Layout&nn.SPShard != 0 && out.Shape == nn.Batch:
		joinCols(&out, parts)
	case out.Layout&nn.SPShard != 0:
		out.R, out.Values = 0, nil
		for _, p := range parts {
			out.R += p.R
			out.Values = append(out.Values, p.Values...)
		}
	default:
		return out, sameBits("tp", parts)
	}
	return out, nil
}

// added is the sum of numbers over ranks, in rank order.
func added(parts []nn.Observation) []float64 {
	sum := append([]float64(nil), parts[0].Values...)
	for _, p := range parts[1:] {
		for i, x := range p.Values {
			sum[i] += x
		}
	}
	return sum
}

func joinCols(out *nn.Observation, parts []nn.Observation) {
	out.C, out.Values = 0, nil
	for _, p := range parts {
		out.C += p.C
	}
	for row := range out.R {
		for _, p := range parts {
			out.Values = append(out.Values, p.Values[row*p.C:(row+1)*p.C]...)
		}
	}
}

// spread puts every rank's slots to their positions; slots that were inserted are dropped.
func spread(first nn.Observation, locals []nn.Observation) Value {
	f := first.Frame
	v := Value{Exact: first.Exact, R: f.B, C: f.S}
	width := 1
	if first.Shape == nn.Slots {
		v.R, v.C, width = f.B*f.S, first.C, first.C
	}
	v.Data = make([]float64, f.B*f.S*width)
	for _, o := range locals {
		for i, src := range o.Frame.Src {
			if src < 0 {
				continue
			}
			b, slot := i/o.Frame.L, i%o.Frame.L
			from, to := i, b*f.S+int(src) // batch first
			if first.Shape == nn.Slots {
				from, to = slot*f.B+b, int(src)*f.B+b
			}
			copy(v.Data[to*width:(to+1)*width], o.Values[from*width:(from+1)*width])
		}
	}
	return v
}

// sameBits checks that every rank shows the same replica.
func sameBits(axis string, parts []nn.Observation) error {
	for r, p := range parts[1:] {
		for i, x := range p.Values {
			if math.Float64bits(x) != math.Float64bits(parts[0].Values[i]) {
				return fmt.Errorf("replicas differ: %s rank 0 has %v, %s rank %d has %v at element %d", axis, parts[0].Values[i], axis, r+1, x, i)
			}
		}
	}
	return nil
}
