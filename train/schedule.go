package train

// OpKind is one entry of a schedule.
type OpKind uint8

// The entries.
const (
	ForwardOp OpKind = iota
	BackwardOp
)

// Op is the forward or the backward pass of one microbatch.
type Op struct {
	Kind       OpKind
	Microbatch int // on this data-parallel rank
}

// Schedule is the order of a step's passes on a stage: with one stage every backward follows its forward.
func Schedule(microbatches int) []Op {
	ops := make([]Op, 0, 2*microbatches)
	for m := range microbatches {
		ops = append(ops, Op{ForwardOp, m}, Op{BackwardOp, m})
	}
	return ops
}
