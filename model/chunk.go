package model

import (
	"phalanx/mesh"
	"phalanx/tensor"
	"phalanx/train"
)

// chunk is one virtual chunk of the model as the rank sees it that holds it. Data goes from chunk to chunk, one
// direction forward and the other backward; with one stage there is one chunk that holds everything.
type chunk[T tensor.Float] struct {
	mesh.Chunk
	index      int  // in the order of the model
	prev, next int  // pipeline ranks of the chunks beside it; −1: none
	norm       bool // it holds the last decoder layer, and with it the final norm
	before     int  // depths that run in chunks before this one
	normed     bool // what comes in has passed the final norm already

	running map[int]*pass[T] // by microbatch, between forward and backward
}

// chunksOf is the chunks of one pipeline rank, in virtual order.
func chunksOf[T tensor.Float](l mesh.Layout, stage int) []*chunk[T] {
	var mine []*chunk[T]
	depths, normed, last := 0, false, lastLayered(l)
	for j, c := range l.Chunks {
		x := &chunk[T]{Chunk: c, index: j, prev: -1, next: -1, norm: j == last, before: depths, normed: normed, running: map[int]*pass[T]{}}
		if j > 0 {
			x.prev = l.Rank(j - 1)
		}
		if j+1 < len(l.Chunks) {
			x.next = l.Rank(j + 1)
		}
		if l.Rank(j) == stage {
			mine = append(mine, x)
		}
		depths += len(c.Depths)
		normed = normed || x.norm
	}
	return mine
}

// lastLayered is the last chunk with decoder layers.
func lastLayered(l mesh.Layout) int {
	last := 0
	for j, c := range l.Chunks {
		if len(c.Layers) > 0 {
			last = j
		}
	}
	return last
}

// holders of the parts of the model that stand once or in copies.
type holders struct {
	embedding, loss int   // pipeline ranks
	depths          []int // by depth
}

func holdersOf(l mesh.Layout, depths int) holders {
	h := holders{depths: make([]int, depths)}
	for j, c := range l.Chunks {
		if c.Embedding {
			h.embedding = l.Rank(j)
		}
		if c.Loss {
			h.loss = l.Rank(j)
		}
		for _, k := range c.Depths {
			h.depths[k-1] = l.Rank(j)
		}
	}
	return h
}

// stagesOf is the pipeline rank of every decoder layer.
func stagesOf(l mesh.Layout) []int {
	var at []int
	for j, c := range l.Chunks {
		for range c.Layers {
			at = append(at, l.Rank(j))
		}
	}
	return at
}

// arenas is the memory of microbatches between forward and backward: as many as are in flight at once.
type arenas[T tensor.Float] struct{ all, free []*tensor.Arena[T] }

// take is an empty arena.
func (a *arenas[T]) take() *tensor.Arena[T] {
	if len(a.free) == 0 {
		x := &tensor.Arena[T]{}
		a.all = append(a.all, x)
		return x
	}
	x := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	x.Reset()
	return x
}

// give takes an arena back. What was allocated in it may be read until it is taken again.
func (a *arenas[T]) give(x *tensor.Arena[T]) { a.free = append(a.free, x) }

// pipeline is what the schedules of a step of n microbatches a rank follow from.
func (r *Rank[T]) pipeline(n int) train.Pipeline {
	return train.Pipeline{PP: r.layout.PP, VPP: r.layout.VPP, Microbatches: n, Group: r.cfg.MicrobatchGroup}
}
