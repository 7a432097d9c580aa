package train

import (
	"fmt"

	"phalanx/mesh"
)

// Message is what a pass hands to a pass of another chunk: rows forward, their gradient backward. Its name is what it is
// for, (pass, microbatch, chunk), so that messages may arrive in any order.
type Message struct {
	Kind       OpKind // of the pass that takes it
	Microbatch int
	Chunk      int // that takes it, counted over the whole layout
	From, To   int // pipeline ranks
}

// String is the message in words.
func (m Message) String() string {
	what := "rows"
	if m.Kind == BackwardOp {
		what = "gradient"
	}
	return fmt.Sprintf("the %s of microbatch %d for chunk %d", what, m.Microbatch, m.Chunk)
}

// Pass is an op with what it waits for before it runs and what it sends once it has. Sends never wait.
type Pass struct {
	Op
	Stage int       // the op's chunk, counted over the whole layout
	Takes []Message // none in the first chunk forward and in the last backward
	Gives []Message
}

// Expand gives the ops of every pipeline rank their messages.
// The error names an op of a chunk or a microbatch that there is none of.
func Expand(l mesh.Layout, microbatches int, ops [][]Op) ([][]Pass, error) {
	if len(ops) != l.PP {
		return nil, fmt.Errorf("found schedules of %d ranks, expected %d", len(ops), l.PP)
	}
	all := make([][]Pass, l.PP)
	for r, list := range ops {
		all[r] = make([]Pass, len(list))
		for i, op := range list {
			if op.Microbatch < 0 || op.Microbatch >= microbatches || op.Chunk < 0 || op.Chunk >= l.VPP {
				return nil, fmt.Errorf("rank %d runs %s; expected microbatches 0 to %d of virtual chunks 0 to %d", r, op, microbatches-1, l.VPP-1)
			}
			all[r][i] = expand(l, op, l.Chunk(r, op.Chunk))
		}
	}
	return all, nil
}

func expand(l mesh.Layout, op Op, stage int) Pass {
	from, takes := l.Before(stage)
	to, gives := l.After(stage)
	if op.Kind == BackwardOp {
		from, to, takes, gives = to, from, gives, takes
	}
	p := Pass{Op: op, Stage: stage}
	if takes {
		p.Takes = []Message{{op.Kind, op.Microbatch, stage, l.Rank(from), l.Rank(stage)}}
	}
	if gives {
		p.Gives = []Message{{op.Kind, op.Microbatch, to, l.Rank(stage), l.Rank(to)}}
	}
	return p
}
