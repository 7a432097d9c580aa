package mesh

import (
	"fmt"
	"strings"
)

// Chunk is what one virtual stage of a pipeline computes, in this order. An empty chunk hands its rows on.
type Chunk struct {
	Embedding bool
	Layers    []int // decoder layers, counted from 0 over the whole model
	Depths    []int // MTP depths, counted from 1
	Loss      bool  // final norm, output head, every loss
}

// Empty reports whether the chunk computes nothing.
func (c Chunk) Empty() bool {
	return !c.Embedding && !c.Loss && len(c.Layers)+len(c.Depths) == 0
}

// String is the chunk as a layout text writes it: "Ett".
func (c Chunk) String() string {
	text := strings.Repeat("t", len(c.Layers)) + strings.Repeat("m", len(c.Depths))
	if c.Embedding {
		text = "E" + text
	}
	if c.Loss {
		text += "L"
	}
	return text
}

// Layout says which part of a model lies where in a pipeline: chunk j is virtual chunk j÷PP of pipeline rank j mod PP.
// Rows go from chunk j to chunk j+1, their gradients from j to j−1 (SEMANTICS §1.6, §9).
type Layout struct {
	PP     int     // pipeline ranks
	VPP    int     // virtual chunks of each rank
	Chunks []Chunk // PP·VPP
}

// Rank is the pipeline rank of chunk j.
func (l Layout) Rank(j int) int { return j % l.PP }

// Virtual is which of its rank's chunks chunk j is.
func (l Layout) Virtual(j int) int { return j / l.PP }

// Chunk is the index of a rank's virtual chunk: the inverse of Rank and Virtual.
func (l Layout) Chunk(rank, virtual int) int { return virtual*l.PP + rank }

// Before is the chunk whose rows chunk j takes; ok is false for the first.
func (l Layout) Before(j int) (before int, ok bool) { return j - 1, j > 0 }

// After is the chunk that takes the rows of chunk j; ok is false for the last.
func (l Layout) After(j int) (after int, ok bool) { return j + 1, j+1 < len(l.Chunks) }

// FirstDepth is the first chunk with an MTP depth; ok is false if there is none.
func (l Layout) FirstDepth() (j int, ok bool) {
	for j, c := range l.Chunks {
		if len(c.Depths) > 0 {
			return j, true
		}
	}
	return 0, false
}

// Hidden is the number of hidden states that chunk j hands on: 1, and one more for each MTP depth up to it.
func (l Layout) Hidden(j int) int {
	n := 1
	for _, c := range l.Chunks[:j+1] {
		n += len(c.Depths)
	}
	return n
}

// LastLayered is the last chunk with decoder layers, which runs the final norm behind them.
func (l Layout) LastLayered() int {
	last := 0
	for j, c := range l.Chunks {
		if len(c.Layers) > 0 {
			last = j
		}
	}
	return last
}

// Standalone reports whether an MTP depth lies on another rank than the loss.
func (l Layout) Standalone() bool {
	for j, c := range l.Chunks {
		if len(c.Depths) > 0 && l.Rank(j) != l.PP-1 {
			return true
		}
	}
	return false
}

// Spread reports whether MTP depths lie in more than one chunk, which Megatron does not allow.
func (l Layout) Spread() bool {
	n := 0
	for _, c := range l.Chunks {
		if len(c.Depths) > 0 {
			n++
		}
	}
	return n > 1
}

// String is the layout as a text without repeats: "Ett|tt|m|L".
func (l Layout) String() string {
	parts := make([]string, len(l.Chunks))
	for j, c := range l.Chunks {
		parts[j] = c.String()
	}
	return strings.Join(parts, "|")
}

// Stack is what a layout divides.
type Stack struct {
	Layers   int  // of the decoder
	Depths   int  // of multi-token prediction
	Repeated bool // one MTP layer at every depth
}

// LayoutError is what is wrong with a layout text, and where.
type LayoutError struct {
	At   int // character of the text, from 1
	Text string
}

func (e *LayoutError) Error() string { return fmt.Sprintf("character %d: %s", e.At, e.Text) }

// Split are Megatron's other ways to divide decoder layers over stages.
type Split struct {
	First, Last int  // decoder layers of the first and the last stage; 0: an even share
	Embedding   bool // the embedding counts as a layer
	Loss        bool // the loss counts as a layer
}

// Even lays out a stack by count: each of pp ranks has an equal share of the layers, but for what the split says, in vpp
// virtual chunks of equal size. The embedding is in the first chunk, MTP depths and the loss in the last.
// The error says which numbers do not divide.
func Even(pp, vpp int, stack Stack, split Split) (Layout, error) {
	if vpp > layoutItemsMax/pp {
		return Layout{}, fmt.Errorf("%d ranks with %d virtual chunks are more than %d chunks", pp, vpp, layoutItemsMax)
	}
	share, err := split.shares(pp, vpp, stack.Layers)
	if err != nil {
		return Layout{}, err
	}
	l := Layout{PP: pp, VPP: vpp, Chunks: make([]Chunk, pp*vpp)}
	last := len(l.Chunks) - 1
	l.Chunks[0].Embedding, l.Chunks[last].Loss = true, true
	next := 0
	for j := range l.Chunks {
		n := share[l.Rank(j)] / vpp
		if split.Embedding && j == 0 {
			n--
		}
		if split.Loss && j == last {
			n--
		}
		if n < 0 {
			return Layout{}, fmt.Errorf("chunk %d of %d has no layer that %s could take the place of", j, len(l.Chunks), split.what())
		}
		l.Chunks[j].Layers = count(next, n)
		next += n
	}
	l.Chunks[last].Depths = count(1, stack.Depths)
	return l, nil
}

// what are the parts that count as layers.
func (s Split) what() string {
	switch {
	case s.Embedding && s.Loss:
		return "the embedding and the loss"
	case s.Embedding:
		return "the embedding"
	}
	return "the loss"
}

// shares is how many layers each rank has, with the embedding and the loss where they count.
func (s Split) shares(pp, vpp, layers int) ([]int, error) {
	whole, ranks, what := layers, pp, fmt.Sprintf("num_layers %d", layers)
	if s.Embedding {
		whole, what = whole+1, what+" + 1 for the embedding"
	}
	if s.Loss {
		whole, what = whole+1, what+" + 1 for the loss"
	}
	if s.First > 0 {
		whole, ranks, what = whole-s.First, ranks-1, fmt.Sprintf("%s − %d of the first stage", what, s.First)
	}
	if s.Last > 0 {
		whole, ranks, what = whole-s.Last, ranks-1, fmt.Sprintf("%s − %d of the last stage", what, s.Last)
	}
	if whole != layers {
		what = fmt.Sprintf("%s = %d", what, whole)
	}
	switch {
	case whole < 0 || ranks < 0 || ranks == 0 && whole > 0:
		return nil, fmt.Errorf("%s cannot be divided over the %d other stages", what, max(ranks, 0))
	case ranks > 0 && whole%ranks != 0:
		return nil, fmt.Errorf("%s is not divisible by %d stages", what, ranks)
	}
	share := make([]int, pp)
	for r := range share {
		switch {
		case r == 0 && s.First > 0:
			share[r] = s.First
		case r == pp-1 && s.Last > 0:
			share[r] = s.Last
		default:
			share[r] = whole / ranks
		}
		if share[r]%vpp != 0 {
			return nil, fmt.Errorf("%d virtual chunks do not divide the layers of stage %d, which are %d", vpp, r, share[r])
		}
	}
	return share, nil
}

// count is from, from+1, …: n numbers; nil for none.
func count(from, n int) []int {
	if n == 0 {
		return nil
	}
	out := make([]int, n)
	for i := range out {
		out[i] = from + i
	}
	return out
}
