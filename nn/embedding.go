package nn

import (
	"fmt"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Embedding is the vocabulary table [V, H], its rows cut over the tensor-parallel group: rank j owns rows
// [j·V/tp, (j+1)·V/tp). Learned positions [P, H], whole on every rank, are added.
type Embedding[T tensor.Float] struct {
	Table     *Param[T]
	Positions *Param[T] // nil: none
	Dropout   Dropout   // of the sums
}

// EmbeddingGrads are accumulators of one use of an embedding; nil: that use teaches the table nothing.
type EmbeddingGrads[T tensor.Float] struct {
	Words     Use[T]
	Positions []T
}

const embedded = "embedding" // in the name of the draws

// Forward looks up ids and positions [B, S] (batch-first) and returns [N, H] in the layout of activations between blocks. A
// rank contributes zero rows for ids of others, so the sum over ranks adds zeros and is exact.
func (e Embedding[T]) Forward(c *Ctx[T], ids, positions []int32) tensor.Mat[T] {
	h := e.Table.Shape[1]
	out := c.Arena.Mat(c.L()*c.B, h)
	first, n := e.owned()
	for r := range out.Rows {
		id := int(ids[c.batchFirst(r)]) - first
		if id >= 0 && id < n {
			copy(out.Row(r), e.Table.Data[id*h:(id+1)*h])
		} else {
			clear(out.Row(r))
		}
	}
	x := c.ReducePartial(out, TagEmbedding)
	e.eachPosition(c, x, positions, func(row []T, at int) { kernel.AddInto(row, e.Positions.Data[at:at+h]) })
	return c.Drop(e.Dropout, embedded, x)
}

// Backward adds the gradients of what was looked up to one use's accumulators, rows in ascending order.
func (e Embedding[T]) Backward(c *Ctx[T], ids, positions []int32, dy tensor.Mat[T], into EmbeddingGrads[T]) {
	if into.Words.Grad == nil {
		return
	}
	dy = c.Drop(e.Dropout, embedded, dy)
	h := e.Table.Shape[1]
	e.eachPosition(c, dy, positions, func(row []T, at int) { kernel.AddInto(into.Positions[at:at+h], row) })
	whole := c.WholeRows(dy, TagEmbedding)
	first, n := e.owned()
	for r := range whole.Rows {
		id := int(ids[c.batchFirst(r)]) - first
		if id >= 0 && id < n {
			kernel.AddInto(into.Words.Row(id, h), whole.Row(r))
		}
	}
}

// eachPosition visits this rank's rows [local rows, H], in ascending order, with the place of their position in the table.
func (e Embedding[T]) eachPosition(c *Ctx[T], x tensor.Mat[T], positions []int32, f func(row []T, at int)) {
	if e.Positions == nil {
		return
	}
	from, _ := c.SPRows()
	for r := range x.Rows {
		p := int(positions[c.batchFirst(from+r)])
		if p < 0 || p >= e.Positions.Shape[0] {
			panic(fmt.Sprintf("nn: position %d of a table of %d learned positions", p, e.Positions.Shape[0]))
		}
		f(x.Row(r), p*x.Cols)
	}
}

// batchFirst is where row r of all slots, slot-major, is in a [B, L] tensor.
func (c *Ctx[T]) batchFirst(r int) int { return r%c.B*c.L() + r/c.B }

func (e Embedding[T]) owned() (first, n int) {
	n = e.Table.Shape[0] / e.Table.Shard.Parts
	return e.Table.Shard.Index * n, n
}
