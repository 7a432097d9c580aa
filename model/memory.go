package model

import (
	"phalanx/config"
	"phalanx/mesh"
	"phalanx/train"
)

// Memory is what a rank holds while it trains, in elements of train.dtype.
type Memory struct {
	Weights     int
	Grads       int // accumulators of every use
	Moments     int // both; with a sharded optimizer this rank's share, as even as blocks allow
	Activations int // of microbatches between their forward and their backward pass, and what a pass needs besides
}

// Elements is all of it.
func (m Memory) Elements() int { return m.Weights + m.Grads + m.Moments + m.Activations }

// MemoryOf counts what a rank would hold: parameters one by one, activations by what each layer takes from its arena.
// Tokens of experts are taken to be spread evenly, rows to be single documents of seq_length.
func MemoryOf(s *config.Scenario, rank int) (Memory, error) {
	layout, err := s.Model.PipelineLayout()
	if err != nil {
		return Memory{}, err
	}
	r, _, err := declared[float32](Env{Scenario: s, Rank: rank}, layout)
	if err != nil {
		return Memory{}, err
	}
	m, sizes := Memory{}, s.Sizes()
	for _, p := range r.params.List {
		n, share := p.Local(), 1
		if s.Optimizer.UseDistributedOptimizer {
			share = sizes.CP * sizes.DP
			if p.Expert {
				share = sizes.Of(mesh.EDP)
			}
		}
		m.Weights += n
		m.Grads += n * max(p.Spec.Uses, 1)
		m.Moments += 2 * n / share
	}
	m.Activations = r.activations(s.NumMicrobatches())
	return m, nil
}

// activations follows the schedule: a pass takes the arena that was given back last, or a new one. An arena keeps the
// most that a pass has ever taken from it.
func (r *Rank[T]) activations(microbatches int) int {
	k := newKeeping(r)
	var stage pool
	depths := make([]pool, len(r.depths))
	for _, op := range r.pipeline(microbatches).Schedule(r.env.Scenario.Sizes().Coord(r.env.Rank).PP) {
		ch := r.chunks[op.Chunk]
		if op.Kind == train.BackwardOp {
			stage.give(op.Chunk, op.Microbatch)
			for _, d := range ch.Depths {
				depths[d-1].give(op.Chunk, op.Microbatch)
			}
			continue
		}
		stage.take(op.Chunk, op.Microbatch, k.chunk(ch.Chunk, ch.before, ch.norm, ch.normed))
		for _, d := range ch.Depths {
			depths[d-1].take(op.Chunk, op.Microbatch, k.depth(d))
		}
	}
	total := stage.total()
	for i := range depths {
		total += depths[i].total()
	}
	return total
}

// pool is arenas as they are taken and given back.
type pool struct {
	most []int // of each arena
	free []int
	held map[[2]int]int // by virtual chunk and microbatch
}

func (p *pool) take(chunk, microbatch, n int) {
	if p.held == nil {
		p.held = map[[2]int]int{}
	}
	if len(p.free) == 0 {
		p.free = append(p.free, len(p.most))
		p.most = append(p.most, 0)
	}
	i := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.most[i] = max(p.most[i], n)
	p.held[[2]int{chunk, microbatch}] = i
}

func (p *pool) give(chunk, microbatch int) {
	p.free = append(p.free, p.held[[2]int{chunk, microbatch}])
	delete(p.held, [2]int{chunk, microbatch})
}

func (p *pool) total() int {
	n := 0
	for _, m := range p.most {
		n += m
	}
	return n
}
