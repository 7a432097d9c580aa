package train

import (
	"fmt"
	"strings"

	"phalanx/mesh"
)

// OpKind is one entry of a schedule.
type OpKind uint8

// The entries.
const (
	ForwardOp OpKind = iota
	BackwardOp
)

// String is the letter of printed schedules.
func (k OpKind) String() string {
	if k == BackwardOp {
		return "B"
	}
	return "F"
}

// Op is the forward or the backward pass of one microbatch through one chunk.
type Op struct {
	Kind       OpKind
	Microbatch int // on this data-parallel rank
	Chunk      int // virtual chunk of the rank: 0 without interleaving
}

// String is the op as F2.0: pass, microbatch, virtual chunk.
func (o Op) String() string { return fmt.Sprintf("%s%d.%d", o.Kind, o.Microbatch, o.Chunk) }

// Pipeline is what the schedules of a step follow from. The zero values of PP and VPP mean 1.
type Pipeline struct {
	PP           int  // ranks
	VPP          int  // virtual chunks of each rank; above 1: interleaved
	Microbatches int  // of each data-parallel rank in a step
	Group        int  // microbatches that a chunk takes in sequence, interleaved only (microbatch_group_size_per_vp_stage); 0: PP
	ForwardOnly  bool // validation
}

func (p Pipeline) ranks() int  { return max(p.PP, 1) }
func (p Pipeline) chunks() int { return max(p.VPP, 1) }

func (p Pipeline) group() int {
	if p.Group > 0 {
		return p.Group
	}
	return p.ranks()
}

// Check says why there is no schedule; without interleaving there always is one.
func (p Pipeline) Check() error {
	if p.chunks() == 1 {
		return nil
	}
	return mesh.CheckGroups(p.ranks(), p.Microbatches, p.Group)
}

// Warmup is the number of forward passes of a rank before it alternates: min(p−rank−1, M), interleaved
// min(2(p−rank−1) + (v−1)g, vM) (SEMANTICS §9.1, §9.2).
func (p Pipeline) Warmup(rank int) int {
	behind := p.ranks() - rank - 1
	if p.chunks() == 1 {
		return min(behind, p.Microbatches)
	}
	return min(2*behind+(p.chunks()-1)*p.group(), p.chunks()*p.Microbatches)
}

// Schedule is the order of a step's passes on a rank: warm-up, then one forward and one backward in turn, then the
// backwards that are left. On every chunk microbatches run in ascending order, forward and backward.
// With one rank and one chunk every backward follows its forward.
func (p Pipeline) Schedule(rank int) []Op {
	table := p.table()
	warmup := p.Warmup(rank)
	if p.ForwardOnly {
		warmup = len(table)
	}
	ops := make([]Op, 0, 2*len(table))
	for _, t := range table[:warmup] {
		ops = append(ops, t)
	}
	for i, t := range table[warmup:] {
		ops = append(ops, t, p.backward(table[i]))
	}
	if p.ForwardOnly {
		return ops
	}
	for _, t := range table[len(table)-warmup:] {
		ops = append(ops, p.backward(t))
	}
	return ops
}

// table is the forward passes of a rank in order: for each group, for each chunk, for each microbatch of the group.
func (p Pipeline) table() []Op {
	table := make([]Op, 0, p.chunks()*p.Microbatches)
	for first := 0; first < p.Microbatches; first += p.group() {
		for v := range p.chunks() {
			for m := first; m < min(first+p.group(), p.Microbatches); m++ {
				table = append(table, Op{ForwardOp, m, v})
			}
		}
	}
	return table
}

// backward is the entry of the backward table at the place of a forward one: the same with chunks in reverse.
func (p Pipeline) backward(f Op) Op {
	return Op{BackwardOp, f.Microbatch, p.chunks() - 1 - f.Chunk}
}

// Schedules are the schedules of every rank.
func (p Pipeline) Schedules() [][]Op {
	all := make([][]Op, p.ranks())
	for r := range all {
		all[r] = p.Schedule(r)
	}
	return all
}

// InFlight is, for each virtual chunk of a rank, the most microbatches that have run forward and not yet backward: what
// the rank keeps activations of. In a schedule without backwards, one.
func InFlight(ops []Op, chunks int) []int {
	now, most := make([]int, chunks), make([]int, chunks)
	both := false
	for _, op := range ops {
		if op.Kind == BackwardOp {
			both = true
			now[op.Chunk]--
			continue
		}
		now[op.Chunk]++
		most[op.Chunk] = max(most[op.Chunk], now[op.Chunk])
	}
	for v := range most {
		if !both {
			most[v] = min(most[v], 1)
		}
	}
	return most
}

// ScheduleText is a rank's schedule on one line: "rank 0: F0.0 F1.0 B0.0 …", pass, microbatch, virtual chunk.
func ScheduleText(rank int, ops []Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank %d:", rank)
	for _, op := range ops {
		b.WriteByte(' ')
		b.WriteString(op.String())
	}
	return b.String()
}
