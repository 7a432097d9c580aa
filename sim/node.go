package sim

import (
	"bytes"
	"maps"
	"slices"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/recovery"
)

// node is a rank over all of its lives: its disk, and what was seen of it.
type node struct {
	c         *cluster
	rank      int
	worker    *worker
	disk      map[uint32]snapshot // by step
	committed uint32              // the generation that is written down
	life      *life               // the newest; nil: none yet
	passed    []int               // by passage: how often it came by
	noRoom    int                 // snapshots that will find the disk full, by passages

	// sent is the checksum of every message that some life has sent, kept of every state: another life must do the same.
	sent     map[recovery.Edge][]fingerprint
	kept     map[uint32]uint64
	bytes    []int64 // by step: payload to other ranks
	told     []int64 // by step: payload to the collector
	sinkBy   uint32  // incarnation that last wrote what lasts
	sinkProc *process
}

// snapshot is what a disk holds of a step.
type snapshot struct {
	local  []byte
	groups map[mesh.Axis]collective.GroupState
	at     recovery.State
}

func newNode(c *cluster, rank int, w *worker) *node {
	return &node{c: c, rank: rank, worker: w, disk: map[uint32]snapshot{}, passed: make([]int, len(c.o.Passages)),
		sent: map[recovery.Edge][]fingerprint{}, kept: map[uint32]uint64{}, bytes: make([]int64, c.job.Steps()+1), told: make([]int64, c.job.Steps()+1)}
}

// passage is the fault at a fixed point, if one waits where the rank comes by now.
func (n *node) passage(at point) (hit Passage, ok bool) {
	for i, p := range n.c.o.Passages {
		if p.Rank == n.rank && p.at(at) {
			if n.passed[i]++; n.passed[i] == max(p.Nth, 1) || p.Until > 0 {
				hit, ok = p, true
			}
		}
	}
	return hit, ok
}

// begin is a new life, from the snapshot of the committed generation or from the beginning.
func (n *node) begin(p *process) {
	s, ok := n.disk[n.committed]
	if !ok && n.committed > 0 {
		n.c.fail(breaks(I4, "generation %d is committed and rank %d has no snapshot of it", n.committed, n.rank))
		return
	}
	l, err := n.newLife(p, s)
	if err != nil {
		n.c.fail(breaks(I4, "rank %d cannot begin at its snapshot of step %d: %w", n.rank, n.committed, err))
		return
	}
	n.life = l
	p.lives = append(p.lives, l)
	n.c.note(101, uint64(n.rank), uint64(p.inc), uint64(n.committed))
	if l.o().Shell == NoBarrier {
		l.plan()
	}
	p.later(1+n.c.dice.below(startMax, askStart, n.rank, n.rank), l.start)
}

// durable are the steps that a new life can go back to. The beginning needs no file.
func (n *node) durable() []uint32 { return append(slices.Sorted(maps.Keys(n.disk)), 0) }

// write puts a snapshot into its place. Another life may have done so: with the same bytes.
func (n *node) write(s snapshot) {
	step := s.at.Step
	if n.c.o.Shell == NoSync && n.c.dice.below(2, askOdd, n.rank, n.rank) == 0 { // the name is there before the bytes
		s.local = s.local[:len(s.local)/2]
	}
	if before, twice := n.disk[step]; twice && !bytes.Equal(before.local, s.local) {
		n.c.fail(breaks(I3, "rank %d writes a snapshot of step %d that differs from that of an earlier life", n.rank, step))
	}
	n.disk[step] = s
	n.c.durable.note(n.c, n.rank, step)
}

// commit writes a generation down and frees older snapshots. Every rank can go back to it, or is at a later one.
func (n *node) commit(gen uint32) {
	c := n.c
	if gen < n.committed {
		c.fail(breaks(I4, "rank %d went back from generation %d to %d", n.rank, n.committed, gen))
	}
	n.committed = gen
	c.loadable(gen)
	maps.DeleteFunc(n.disk, func(step uint32, _ snapshot) bool { return step < gen })
}

// loadable checks that every rank can go back to a generation, and that the reports before it are in.
func (c *cluster) loadable(gen uint32) {
	for _, o := range c.nodes {
		if _, ok := o.disk[gen]; !ok && o.committed <= gen {
			c.fail(breaks(I4, "generation %d is committed and rank %d has no snapshot of it", gen, o.rank))
		}
	}
	if c.ledger.complete < gen {
		c.fail(breaks(I4, "generation %d is committed and reports are in up to step %d only", gen, c.ledger.complete))
	}
}
