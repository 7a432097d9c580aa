package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Embedding is the vocabulary table [V, H], its rows cut over the tensor-parallel group: rank j owns rows
// [j·V/tp, (j+1)·V/tp).
type Embedding[T tensor.Float] struct {
	Table   *Param[T]
	Dropout Dropout // of the looked-up rows
}

const embedded = "embedding" // in the name of the draws

// Forward looks up ids [B, S] (batch-first) and returns [N, H] in the layout of activations between blocks. A rank
// contributes zero rows for ids of others, so the sum over ranks adds zeros and is exact.
func (e Embedding[T]) Forward(c *Ctx[T], ids []int32) tensor.Mat[T] {
	h := e.Table.Shape[1]
	out := c.Arena.Mat(c.L()*c.B, h)
	first, n := e.owned()
	for r := range out.Rows {
		id := int(ids[r%c.B*c.L()+r/c.B]) - first
		if id >= 0 && id < n {
			copy(out.Row(r), e.Table.Data[id*h:(id+1)*h])
		} else {
			clear(out.Row(r))
		}
	}
	return c.Drop(e.Dropout, embedded, c.ReducePartial(out, TagEmbedding))
}

// Backward adds the gradient of the looked-up rows to one use's accumulator, rows in ascending order.
func (e Embedding[T]) Backward(c *Ctx[T], ids []int32, dy tensor.Mat[T], into []T) {
	whole := c.WholeRows(c.Drop(e.Dropout, embedded, dy), TagEmbedding)
	h := e.Table.Shape[1]
	first, n := e.owned()
	for r := range whole.Rows {
		id := int(ids[r%c.B*c.L()+r/c.B]) - first
		if id >= 0 && id < n {
			kernel.AddInto(into[id*h:(id+1)*h], whole.Row(r))
		}
	}
}

func (e Embedding[T]) owned() (first, n int) {
	n = e.Table.Shape[0] / e.Table.Shard.Parts
	return e.Table.Shard.Index * n, n
}
