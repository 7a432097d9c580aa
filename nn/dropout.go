package nn

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Dropout sets elements to zero with probability Rate in training and divides the others by 1 − Rate. Which ones is a
// pure function of (seed, what is dropped, layer or depth, step, sample of the step, position in its row, feature): no
// layout, rank or restart enters, a recomputed layer and the backward pass draw the same again, and nothing is kept.
type Dropout struct {
	Rate float64 // 0: nothing is dropped
	Seed uint64
}

// stream is where the draws of one use of a dropout come from.
type stream struct {
	key  uint64
	step uint32
	cut  uint32 // a draw below is dropped
}

func dropStream[T tensor.Float](c *Ctx[T], d Dropout, what string) stream {
	return stream{d.Seed ^ xxhash.Sum64String("dropout "+what+" "+c.Scope), uint32(c.Site.Step), uint32(min(math.Round(d.Rate*(1<<32)), math.MaxUint32))}
}

// draws are successive draws, from any place of a stream on: four for each value of the counter.
type draws struct {
	key  [2]uint32
	ctr  [4]uint32
	word [4]uint32
	at   uint32
}

// from starts at an index of the draws of (sample, position).
func (s stream) from(sample, position, index int) draws {
	d := draws{key: [2]uint32{uint32(s.key), uint32(s.key >> 32)}, ctr: [4]uint32{s.step, uint32(sample), uint32(position), uint32(index / 4)}, at: uint32(index % 4)}
	d.word = kernel.Philox(d.key, d.ctr)
	return d
}

func (d *draws) next() uint32 {
	if d.at == 4 {
		d.at = 0
		d.ctr[3]++
		d.word = kernel.Philox(d.key, d.ctr)
	}
	w := d.word[d.at]
	d.at++
	return w
}

// factor is what a kept element is multiplied by.
func (d Dropout) factor() float64 { return 1 / (1 - d.Rate) }

// dropping reports whether anything is dropped: not in evaluation.
func (c *Ctx[T]) dropping(d Dropout) bool { return d.Rate > 0 && c.Site.Phase != Eval }

// sample is row b of this microbatch, counted through the whole step.
func (c *Ctx[T]) sample(b int) int { return c.Microbatch*c.B + b }

// Drop is the dropout of activations [local rows, H] in new memory, or x itself where nothing is dropped. It is its own
// transpose: gradients take the same way.
func (c *Ctx[T]) Drop(d Dropout, what string, x tensor.Mat[T]) tensor.Mat[T] {
	if !c.dropping(d) {
		return x
	}
	out := c.Arena.Mat(x.Rows, x.Cols)
	s, factor := dropStream(c, d, what), T(d.factor())
	first, _ := c.SPRows()
	kernel.Parallel(x.Rows, 1+(1<<13)/max(x.Cols, 1), func(from, to int) {
		for r := from; r < to; r++ {
			b, slot := (first+r)%c.B, (first+r)/c.B
			w := s.from(c.sample(b), int(c.Frame.Src[b*c.L()+slot]), 0)
			dst := out.Row(r)
			for i, v := range x.Row(r) {
				if w.next() < s.cut {
					v = 0
				}
				dst[i] = factor * v
			}
		}
	})
	return out
}

// scoreDrop is the dropout of attention's probabilities: the draws of (head, query) by position of the key.
type scoreDrop struct {
	stream
	head   int // of the whole model, of this rank's first
	sample int // of row 0
	factor float64
}

// scoreDrop is that of a rank's heads; nil where nothing is dropped.
func (a *Attention[T]) scoreDrop(c *Ctx[T]) *scoreDrop {
	if !c.dropping(a.Dropout) {
		return nil
	}
	return &scoreDrop{dropStream(c, a.Dropout, "attention"), c.TPRank() * a.Hq, c.sample(0), a.Dropout.factor()}
}

// shifted is the dropout of heads from by on.
func (s *scoreDrop) shifted(by int) *scoreDrop {
	if s == nil {
		return nil
	}
	d := *s
	d.head += by
	return &d
}

// at are the draws of a query in row b and head h of this rank, for keys from a position of the row on.
func (s *scoreDrop) at(b, h int, query, key int32) draws {
	t := s.stream
	t.key += uint64(s.head+h) * 0x9E3779B97F4A7C15 // heads are apart by an odd number
	return t.from(s.sample+b, int(query), int(max(key, 0)))
}

// positions of the tile's first query and first key in their row; −1: inserted, and seen by nothing that counts.
func (p *pair[T]) positions(b int, t tile) (query []int32, key int32) {
	return p.qf.Src[b*p.qf.L+t.qFrom:], p.kf.Src[b*p.kf.L+t.kFrom]
}

// dropRow drops the probabilities of query i of a tile.
func (p *pair[T]) dropRow(b, h int, t tile, i int, row []T) {
	query, key := p.positions(b, t)
	w, factor := p.drop.at(b, h, query[i], key), T(p.drop.factor)
	for j, v := range row {
		if w.next() < p.drop.cut {
			v = 0
		}
		row[j] = factor * v
	}
}

// dropRowGrad turns gradients of query i's dropped probabilities into those of its scores, and its probabilities into
// the dropped ones.
func (p *pair[T]) dropRowGrad(b, h int, t tile, i int, prob, grad []T, dot T) {
	query, key := p.positions(b, t)
	w, factor, scale := p.drop.at(b, h, query[i], key), T(p.drop.factor), scoreScale[T](p.d)
	for j, pr := range prob {
		keep := factor
		if w.next() < p.drop.cut {
			keep = 0
		}
		grad[j] = scale * (pr * (T(keep*grad[j]) - dot))
		prob[j] = keep * pr
	}
}
