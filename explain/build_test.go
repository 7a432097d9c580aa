package explain

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
	"phalanx/nn"
)

// batches is a source of given microbatches, the same in every step.
type batches []*nn.Microbatch

func (b batches) Microbatch(_, j int) *nn.Microbatch { return b[j] }
func (b batches) Microbatches() int                  { return len(b) }

// layout is the sizes that a test sets.
type layout struct {
	tp, cp, dp int
	sp         bool
}

var single = layout{1, 1, 1, false}

// scenario is a mixture of experts with depths.
func scenario(depths int, l layout) config.Scenario {
	s := config.Defaults()
	s.Name = "test"
	s.Model.NumLayers, s.Model.NumMoEExperts, s.Model.MTPNumLayers = 1, 4, depths
	s.Model.TensorParallel, s.Model.ContextParallel, s.Model.SequenceParallel = l.tp, l.cp, l.sp
	s.Train.TrainIters = 3
	s.Dist.WorldSize = l.tp * l.cp * l.dp
	return s
}

// reported explains microbatch 0 of given ones.
func reported(t *testing.T, s config.Scenario, tok data.Tokenizer, mbs ...*nn.Microbatch) *Report {
	t.Helper()
	x, err := newSubject(&s, &data.Data{Train: batches(mbs), Tokenizer: tok, Summary: "given rows"}, Options{Step: 1})
	require.NoError(t, err)
	r, err := x.report()
	require.NoError(t, err)
	return r
}

// rowsOf is a microbatch of rows of s positions with so many tokens each, all labels of which count. Token i of row b
// is 10·(b+1)+i; padding is 1.
func rowsOf(s int, lengths ...int) *nn.Microbatch {
	n := len(lengths) * s
	mb := &nn.Microbatch{B: len(lengths), S: s, IDs: make([]int32, n), Labels: make([]int32, n), Positions: make([]int32, n),
		Loss: &nn.LossMask{B: len(lengths), S: s, Weight: make([]float32, n)}, Pad: &nn.PadMask{B: len(lengths), S: s, Pad: make([]bool, n)}}
	for b, length := range lengths {
		for i := range s {
			at := b*s + i
			mb.IDs[at], mb.Labels[at], mb.Positions[at], mb.Pad.Pad[at] = 1, 1, int32(i), i >= length
			if i < length {
				mb.IDs[at], mb.Labels[at], mb.Loss.Weight[at] = int32(10*(b+1)+i), int32(10*(b+1)+i+1), 1
			}
		}
	}
	return mb
}

// t1 is a batch of rows of 5 and 3 labels in 8 positions.
func t1() *nn.Microbatch {
	mb := rowsOf(8, 5, 3)
	mb.Labels = []int32{5, 7, 4, 9, 2, 1, 1, 1, 6, 8, 2, 1, 1, 1, 1, 1}
	return mb
}

// packed is a row of documents in places, from position 0.
func packed(lengths, places []int) *nn.Microbatch {
	s := 0
	var docs []nn.Doc
	for i, place := range places {
		docs = append(docs, nn.Doc{Start: s, Logical: lengths[i], Physical: place})
		s += place
	}
	mb := rowsOf(s, s)
	mb.Docs = nn.Docs{docs}
	for i, d := range docs {
		for o := range d.Physical {
			at := d.Start + o
			real := o < d.Logical
			mb.IDs[at], mb.Labels[at], mb.Positions[at], mb.Pad.Pad[at], mb.Loss.Weight[at] = 0, 0, int32(o), !real, 0
			if real {
				mb.IDs[at], mb.Labels[at], mb.Loss.Weight[at] = int32(10*(i+1)+o+1), int32(10*(i+1)+o+2), 1
			}
		}
	}
	return mb
}

// counted are the tokens of every term.
func counted(r *Report) []int64 {
	var out []int64
	for _, t := range r.Terms {
		out = append(out, t.Tokens)
	}
	return out
}

// zeros are the places of 0 in a mask.
func zeros(mask []int) []int {
	out := []int{}
	for i, v := range mask {
		if v == 0 {
			out = append(out, i)
		}
	}
	return out
}

// upTo is 0 … n−1.
func upTo(n int) []int {
	out := []int{}
	for i := range n {
		out = append(out, i)
	}
	return out
}

// layouts are what an answer must not depend on.
var layouts = []layout{single, {2, 1, 1, true}, {4, 1, 1, true}, {2, 1, 1, false}, {1, 2, 1, false}, {2, 2, 1, true}, {1, 4, 1, false}, {4, 3, 1, true}}
