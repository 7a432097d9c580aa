package nn

import (
	"math"

	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// queryTile is the number of query rows worked on at once: a tile of scores [queryTile, L] stays in cache.
const queryTile = 64

// heads is how the columns of queries, keys and values are cut, and what is dropped of their probabilities (nil: nothing).
type heads struct {
	q, kv, d int
	drop     *scoreDrop
}

// view is a column range of a matrix of slots: the element at slot i of batch row b starts at i·B·Cols + b·Cols + col.
type view[T tensor.Float] struct {
	m   tensor.Mat[T]
	col int
}

func (v view[T]) at(b, head, d int) []T { return v.m.Data[b*v.m.Cols+v.col+head*d:] }

// pair is one block of attention: the queries of one rank's slots against the keys and values of another's (or the
// same one's).
type pair[T tensor.Float] struct {
	heads
	b       int
	qf, kf  *Frame
	q, k, v view[T]
	arena   *tensor.Arena[T]
}

// softmaxState is the running softmax of every query: of the blocks so far, the largest score and the sum of
// exponentials. [B, Hq, L].
type softmaxState[T tensor.Float] struct{ max, sum []T }

func newState[T tensor.Float](a *tensor.Arena[T], n int) softmaxState[T] {
	s := softmaxState[T]{a.Alloc(n), a.Zeros(n)}
	for i := range s.max {
		s.max[i] = T(math.Inf(-1))
	}
	return s
}

// eachGroup runs f for every (row of the batch, key head), in parallel: groups write to places of their own.
func (p *pair[T]) eachGroup(f func(b, kv int, score []T), tiles int) {
	n := p.b * p.kv
	flop := 4 * float64(p.qf.L) * float64(p.kf.L) * float64(p.heads.q/p.kv*p.d)
	size := tiles * queryTile * p.kf.L
	scores := p.arena.Alloc(n * size)
	kernel.Parallel(n, 1+int(4e6/flop), func(from, to int) {
		for g := from; g < to; g++ {
			f(g/p.kv, g%p.kv, scores[g*size:(g+1)*size])
		}
	})
}

// tile is some queries of one run against the keys of one run of the same document: query i sees the first seen(i).
type tile struct {
	qFrom, n     int // query slots [qFrom, qFrom+n)
	kFrom, most  int // key slots [kFrom, kFrom+most): what the last query sees
	qOrder, kOff int
}

func (t tile) seen(i int) int { return min(t.most, max(0, t.qOrder+i-t.kOff+1)) }

// eachTile visits the tiles of batch row b that see anything, in ascending order of queries, then keys.
func (p *pair[T]) eachTile(b int, f func(tile)) {
	for _, q := range p.qf.Runs[b] {
		for from := q.From; from < q.To; from += queryTile {
			n := min(queryTile, q.To-from)
			order := q.Order + from - q.From
			for _, k := range p.kf.Runs[b] {
				most := min(k.To-k.From, order+n-k.Order)
				if k.Doc == q.Doc && most > 0 {
					f(tile{from, n, k.From, most, order, k.Order})
				}
			}
		}
	}
}

// attend adds the block to the running softmax: out holds Σ exp(score − max)·v.
func (p *pair[T]) attend(s softmaxState[T], out view[T]) {
	p.eachGroup(func(b, kv int, score []T) {
		for h := kv * (p.heads.q / p.kv); h < (kv+1)*(p.heads.q/p.kv); h++ {
			p.eachTile(b, func(t tile) { p.attendTile(s, out, b, h, kv, t, score) })
		}
	}, 1)
}

func (p *pair[T]) attendTile(s softmaxState[T], out view[T], b, h, kv int, t tile, score []T) {
	ldQ, ldK, ldO := p.b*p.q.m.Cols, p.b*p.k.m.Cols, p.b*out.m.Cols
	o := out.at(b, h, p.d)[t.qFrom*ldO:]
	scale := scoreScale[T](p.d)
	kernel.Gemm(kernel.NT, t.n, t.most, p.d, p.q.at(b, h, p.d)[t.qFrom*ldQ:], ldQ, p.k.at(b, kv, p.d)[t.kFrom*ldK:], ldK, score, t.most, false)
	first := (b*p.heads.q+h)*p.qf.L + t.qFrom
	for i := range t.n {
		row, seen := score[i*t.most:(i+1)*t.most], t.seen(i)
		clear(row[seen:])
		if seen == 0 {
			continue
		}
		row = row[:seen]
		before, now := s.max[first+i], max(s.max[first+i], scale*kernel.Max(row))
		if before < now && s.sum[first+i] != 0 {
			shrink := kernel.Exp(before - now)
			s.sum[first+i] *= shrink
			kernel.Scale(o[i*ldO:i*ldO+p.d], shrink)
		}
		kernel.ExpScaled(row, row, scale, now)
		s.max[first+i] = now
		s.sum[first+i] += kernel.Sum(row)
		if p.drop != nil {
			p.dropRow(b, h, t, i, row)
		}
	}
	kernel.Gemm(kernel.NN, t.n, p.d, t.most, score, t.most, p.v.at(b, kv, p.d)[t.kFrom*ldK:], ldK, o, ldO, true)
}

// normalise divides the outputs by the sums and returns the log-sum-exps, [B, Hq, L].
func (p *pair[T]) normalise(s softmaxState[T], out view[T]) []T {
	lse := p.arena.Alloc(len(s.max))
	ld := p.b * out.m.Cols
	for b := range p.b {
		for h := range p.heads.q {
			o := out.at(b, h, p.d)
			for i := range p.qf.L {
				j := (b*p.heads.q+h)*p.qf.L + i
				kernel.Scale(o[i*ld:i*ld+p.d], 1/s.sum[j])
				lse[j] = s.max[j] + kernel.Log(s.sum[j])
			}
		}
	}
	return lse
}

// grads is what the backward of a block reads and adds to.
type grads[T tensor.Float] struct {
	lse, dot   []T // [B, Hq, L]: log-sum-exp, and Σ dout·out
	dout       view[T]
	dq, dk, dv view[T]
}

// outDots is Σ dout·out of every query and head: what the softmax's backward subtracts, over all blocks.
func (p *pair[T]) outDots(out, dout view[T]) []T {
	dots := p.arena.Alloc(p.b * p.heads.q * p.qf.L)
	ldO, ldD := p.b*out.m.Cols, p.b*dout.m.Cols
	for b := range p.b {
		for h := range p.heads.q {
			o, d := out.at(b, h, p.d), dout.at(b, h, p.d)
			for i := range p.qf.L {
				dots[(b*p.heads.q+h)*p.qf.L+i] = kernel.Dot(d[i*ldD:i*ldD+p.d], o[i*ldO:i*ldO+p.d])
			}
		}
	}
	return dots
}

// attendGrad is the backward of attend: probabilities are recomputed from the log-sum-exps of the whole softmax.
func (p *pair[T]) attendGrad(g grads[T]) {
	p.eachGroup(func(b, kv int, scratch []T) {
		for h := kv * (p.heads.q / p.kv); h < (kv+1)*(p.heads.q/p.kv); h++ {
			p.eachTile(b, func(t tile) { p.gradTile(g, b, h, kv, t, scratch) })
		}
	}, 2)
}

func (p *pair[T]) gradTile(g grads[T], b, h, kv int, t tile, scratch []T) {
	d := p.d
	ldQ, ldK, ldO, ldDQ, ldDK := p.b*p.q.m.Cols, p.b*p.k.m.Cols, p.b*g.dout.m.Cols, p.b*g.dq.m.Cols, p.b*g.dk.m.Cols
	q, k, v := p.q.at(b, h, d)[t.qFrom*ldQ:], p.k.at(b, kv, d)[t.kFrom*ldK:], p.v.at(b, kv, d)[t.kFrom*ldK:]
	do, dq := g.dout.at(b, h, d)[t.qFrom*ldO:], g.dq.at(b, h, d)[t.qFrom*ldDQ:]
	dk, dv := g.dk.at(b, kv, d)[t.kFrom*ldDK:], g.dv.at(b, kv, d)[t.kFrom*ldDK:]
	prob, ds := scratch[:t.n*t.most], scratch[len(scratch)/2:][:t.n*t.most]
	kernel.Gemm(kernel.NT, t.n, t.most, d, q, ldQ, k, ldK, prob, t.most, false)
	kernel.Gemm(kernel.NT, t.n, t.most, d, do, ldO, v, ldK, ds, t.most, false)
	first := (b*p.heads.q+h)*p.qf.L + t.qFrom
	scale := scoreScale[T](d)
	for i := range t.n {
		row, drow, seen := prob[i*t.most:(i+1)*t.most], ds[i*t.most:(i+1)*t.most], t.seen(i)
		clear(row[seen:])
		clear(drow[seen:])
		kernel.ExpScaled(row[:seen], row[:seen], scale, g.lse[first+i])
		dot := g.dot[first+i]
		if p.drop != nil {
			p.dropRowGrad(b, h, t, i, row[:seen], drow, dot)
			continue
		}
		for j, pr := range row[:seen] {
			drow[j] = scale * (pr * (drow[j] - dot))
		}
	}
	kernel.Gemm(kernel.NN, t.n, d, t.most, ds, t.most, k, ldK, dq, ldDQ, true)
	kernel.Gemm(kernel.TN, t.most, d, t.n, ds, t.most, q, ldQ, dk, ldDK, true)
	kernel.Gemm(kernel.TN, t.most, d, t.n, prob, t.most, do, ldO, dv, ldDK, true)
}
