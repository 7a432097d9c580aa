package nn

import (
	"phalanx/config/mutation"
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// headRows is the number of rows whose logits exist at once. Forward and backward of the head run together, chunk by
// chunk, because every weight of the loss is known beforehand: no [B, S, V] tensor ever exists.
const headRows = 256

// Head is the output layer [V, H] with its rows cut over the tensor-parallel group, and the cross entropy behind it.
type Head[T tensor.Float] struct {
	Table *Param[T]
	Grad  []T // accumulator of this use of the table; nil: the table learns nothing here
	// Bias is added to the logits, in a probe; BiasGrad gathers its gradient.
	Bias     *Param[T]
	BiasGrad []T
	// Smoothing is the share of the target that all ids of the vocabulary have alike: see Smoothing; 0: none.
	Smoothing float64
}

// HeadInput is one loss: what to predict, which labels count, and how much a token weighs.
type HeadInput[T tensor.Float] struct {
	Hidden tensor.Mat[T] // [local rows, H]
	Labels []int32       // [B, S]
	Loss   *LossMask
	Weight float64   // gradient weight of one counted token; the loss sums below are unweighted
	Grad   bool      // compute gradients
	Table  []float64 // takes the place of the cross entropies, [B, L]; nil: none
}

// HeadOutput is one loss. LossSum and Tokens are the same on every tensor-parallel rank.
type HeadOutput[T tensor.Float] struct {
	LossSum float64       // Σ mask · cross entropy, rows in ascending (s, b) order
	Tokens  int64         // Σ mask
	DHidden tensor.Mat[T] // gradient of Hidden, in its layout; unset without Grad
}

// Loss runs the head and the cross entropy over all rows, and their backward.
func (h *Head[T]) Loss(c *Ctx[T], in HeadInput[T]) HeadOutput[T] {
	whole := c.WholeRows(in.Hidden, TagHeadInput)
	out := HeadOutput[T]{Tokens: in.Loss.Count()}
	var dwhole tensor.Mat[T]
	if in.Grad {
		dwhole = c.Arena.Mat(whole.Rows, whole.Cols)
	}
	ce := make([]float64, whole.Rows)
	for from := 0; from < whole.Rows; from += headRows {
		to := min(from+headRows, whole.Rows)
		mark := c.Arena.Mark()
		logits := h.logits(c, whole.Slice(from, to))
		c.ObserveMat("logits", logits, c.Frame.Layout(), TPShard)
		sm := h.crossEntropy(c, logits, in, from, ce)
		if in.Grad {
			h.chunkGrad(c, logits, sm, in, from, whole, dwhole)
		}
		c.Arena.Release(mark)
	}
	if in.Table != nil {
		for r := range ce {
			ce[r] = in.Table[r%c.B*c.L()+r/c.B]
		}
	}
	for r, v := range ce {
		if w := in.Loss.At(r%c.B, r/c.B); w != 0 {
			out.LossSum += float64(w) * v
		}
	}
	c.observeTokenLoss(ce)
	if in.Grad {
		out.DHidden = c.ReducePartial(dwhole, TagHeadInput)
	}
	return out
}

func (h *Head[T]) logits(c *Ctx[T], x tensor.Mat[T]) tensor.Mat[T] {
	v := h.Table.Shape[0] / h.Table.Shard.Parts
	y := Weights[T]{Out: v, In: x.Cols, W: h.Table.Data}.Forward(c.Arena, x)
	if h.Bias != nil {
		for r := range y.Rows {
			kernel.AddInto(y.Row(r), h.Bias.Data)
		}
	}
	return y
}

// rowSoftmax is what a row's gradient needs: exp(l − max)/sum are its probabilities.
type rowSoftmax[T tensor.Float] struct{ max, sum []T }

// crossEntropy fills ce[from:] with −log softmax(logits)[label] of each row, over the whole vocabulary.
func (h *Head[T]) crossEntropy(c *Ctx[T], logits tensor.Mat[T], in HeadInput[T], from int, ce []float64) rowSoftmax[T] {
	n := logits.Rows
	sm := rowSoftmax[T]{max: c.Arena.Alloc(n)}
	kernel.Parallel(n, 16, func(a, b int) {
		for r := a; r < b; r++ {
			sm.max[r] = kernel.Max(logits.Row(r))
		}
	})
	local := c.Mut.Has(mutation.LocalVocabCE)
	if !local {
		c.allReduce(sm.max, TagVocabMax, Max)
	}
	sums := c.Arena.Alloc(2 * n) // Σ exp(l − max), then the label's l − max
	first := h.Table.Shard.Index * logits.Cols
	kernel.Parallel(n, 16, func(a, b int) {
		for r := a; r < b; r++ {
			sums[r] = kernel.SumExp(logits.Row(r), sm.max[r])
			sums[n+r] = 0
			if l := label(c, in.Labels, from+r) - first; l >= 0 && l < logits.Cols {
				sums[n+r] = logits.Row(r)[l] - sm.max[r]
			}
			if h.Smoothing != 0 {
				h.smooth(logits.Row(r), sm.max[r], &sums[n+r])
			}
		}
	})
	if !local {
		c.allReduce(sums, TagVocabSum, Sum)
	}
	sm.sum = sums[:n]
	for r := range n {
		ce[from+r] = float64(kernel.Log(sm.sum[r]) - sums[n+r])
	}
	return sm
}

// chunkGrad turns logits into their gradient, in place, and passes it on to the hidden rows and the table.
func (h *Head[T]) chunkGrad(c *Ctx[T], logits tensor.Mat[T], sm rowSoftmax[T], in HeadInput[T], from int, whole, dwhole tensor.Mat[T]) {
	first := h.Table.Shard.Index * logits.Cols
	kernel.Parallel(logits.Rows, 16, func(a, b int) {
		for r := a; r < b; r++ {
			row := logits.Row(r)
			weight := T(in.Weight) * T(in.Loss.At((from+r)%c.B, (from+r)/c.B))
			if weight == 0 {
				clear(row)
				continue
			}
			kernel.CrossEntropyGrad(row, sm.max[r], 1/sm.sum[r], weight)
			if l := label(c, in.Labels, from+r) - first; l >= 0 && l < len(row) {
				row[l] -= weight
			}
			if h.Smoothing != 0 {
				h.smoothGrad(row, label(c, in.Labels, from+r)-first, weight)
			}
		}
	})
	if h.BiasGrad != nil {
		for r := range logits.Rows {
			kernel.AddInto(h.BiasGrad, logits.Row(r))
		}
	}
	to := from + logits.Rows
	w := Weights[T]{Out: logits.Cols, In: whole.Cols, W: h.Table.Data, G: h.Grad}
	dx := dwhole.Slice(from, to)
	kernel.Gemm(kernel.NN, dx.Rows, w.In, w.Out, logits.Data, w.Out, w.W, w.In, dx.Data, w.In, false)
	if h.Grad != nil {
		w.WeightGrad(logits, whole.Slice(from, to))
	}
}

// label of sequence-major row r.
func label[T tensor.Float](c *Ctx[T], labels []int32, r int) int {
	return int(labels[r%c.B*c.L()+r/c.B])
}

// observeTokenLoss reports unmasked cross entropies as [B, S].
func (c *Ctx[T]) observeTokenLoss(ce []float64) {
	if !c.Wants("token_loss") {
		return
	}
	bs := make([]float64, len(ce))
	for r, v := range ce {
		bs[r%c.B*c.L()+r/c.B] = v
	}
	c.ObserveBatch("token_loss", bs, c.Frame.Layout(), false)
}
