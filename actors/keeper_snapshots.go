package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/snapshot"
)

// The keeper's snapshots: in memory in a run of one process, on disk in one of several.

// Store keeps the snapshots of a rank, as the sections of snapshot.State.
type Store interface {
	// Begin is where the rank begins: the step that it knows to be committed with the snapshot of it (nil: the beginning of
	// the run), and the steps of all snapshots that it has.
	Begin() (step uint32, sections [][]byte, durable []uint32, err error)
	// Sections are those of the snapshot of a step.
	Sections(step uint32) (sections [][]byte, err error)
	// Save says that the snapshot is durable already; or it writes in the background, and done says when it is durable, or why
	// it never will be.
	Save(step uint32, sections [][]byte, done func(error)) (durable bool)
	// Commit notes that all ranks can go back to a step; earlier snapshots can go.
	Commit(step uint32) error
}

// store is where the snapshots of a rank are.
func (r *run) store(rank int) (Store, error) {
	if p := r.part(); p != nil {
		return p.Stores(rank)
	}
	return &snapshot.Memory{Rank: rank}, nil
}

// recall is the snapshot that a life begins with, and the steps of all there are.
func (k *keeper) recall() (s snapshot.State, durable []uint32, err error) {
	sections, err := k.stored()
	if err == nil && sections != nil {
		s, err = snapshot.StateOf(sections)
	}
	return s, slices.Clone(k.steps), err
}

// stored is what the store has of the committed step; nil: it is the beginning.
func (k *keeper) stored() (sections [][]byte, err error) {
	if k.store == nil {
		if k.store, err = k.run.store(k.rank); err != nil {
			return nil, err
		}
		k.committed, sections, k.steps, err = k.store.Begin()
		return sections, err
	}
	if k.committed == 0 {
		return nil, nil
	}
	return k.store.Sections(k.committed)
}

// dueAt is the snapshot of a step that is being gathered.
func (k *keeper) dueAt(step uint32) snapshot.State {
	s, ok := k.due[step]
	if !ok {
		s.Groups = map[mesh.Axis]collective.GroupState{}
		k.due[step] = s
	}
	return s
}

// keep keeps a snapshot when all of it is there.
func (k *keeper) keep(ctx actor.Context, step uint32, s snapshot.State) {
	k.due[step] = s
	if s.Local == nil || len(s.Groups) < len(k.run.split()) {
		return
	}
	delete(k.due, step)
	if k.passedAt > 0 && step >= k.passedAt { // the step of the last death is behind it
		k.record.Passed()
		k.passedAt = 0
	}
	s.At = k.machine.Boundary(step)
	k.record.Snapshot(step, s)
	self, system, life := ctx.Self(), ctx.ActorSystem(), k.inc
	if k.store.Save(step, s.Sections(), func(err error) { system.Root.Send(self, stored{life, step, err}) }) {
		k.durable(ctx, stored{life, step, nil})
	}
}

// durable takes the store's answer. Without a snapshot training goes on, and the log grows.
func (k *keeper) durable(ctx actor.Context, m stored) {
	if m.err != nil {
		k.run.log.Warn("snapshot not written", zap.Int("rank", k.rank), zap.Uint32("step", m.step), zap.Error(m.err))
		k.run.status().alarm(fmt.Sprintf("rank %d: the snapshot of step %d is not written: %v", k.rank, m.step, m.err))
		return
	}
	k.steps = append(k.steps, m.step)
	if k.passes(ctx, between(AfterSnapshot, m.step)) {
		k.do(ctx, k.machine.Saved(m.step))
	}
}

// commit notes that all ranks can go back to a step.
func (k *keeper) commit(step uint32) {
	k.peaked() // until now
	k.committed = step
	k.steps = slices.DeleteFunc(k.steps, func(s uint32) bool { return s < step })
	if err := k.store.Commit(step); err != nil {
		k.run.status().alarm(fmt.Sprintf("rank %d: older snapshots stay on disk: %v", k.rank, err))
	}
}
