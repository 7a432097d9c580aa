package actors

import (
	"crypto/sha256"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/messages"
)

// stage is the Stage actor: the parent of one pipeline stage's ranks. It gathers their reports and counts, so that
// the supervisor gets one message of a stage where there were as many as ranks.
type stage struct {
	run     *run
	stage   int
	first   int // rank
	ranks   int
	ready   int
	reports gather[report]
	done    int
	counts  counts
	known   map[rankKind]int                 // with recovery: the last step that a rank has reported
	told    map[rankReport][sha256.Size]byte // and what
}

// rankKind is one sort of report of a rank.
type rankKind struct {
	rank int
	kind reportKind
}

// rankReport is one report of a rank.
type rankReport struct {
	rank int
	key  reportKey
}

func newStage(r *run, s int) *stage {
	n := r.job.Sizes.World() / r.job.Sizes.PP
	return &stage{run: r, stage: s, first: s * n, ranks: n, reports: gather[report]{members: n, first: s * n, per: 1}, known: map[rankKind]int{}, told: map[rankReport][sha256.Size]byte{}}
}

// Receive implements actor.Actor.
func (s *stage) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		for _, rank := range s.run.members(s.stage) {
			s.spawn(ctx, rank)
		}
	case ready:
		if s.ready++; s.ready == len(s.run.members(s.stage)) {
			ctx.Send(ctx.Parent(), ready{rank: s.stage})
		}
	case start, ask:
		for _, k := range ctx.Children() {
			ctx.Send(k, m)
		}
	case report:
		s.report(ctx, m)
	case failed, died:
		ctx.Send(ctx.Parent(), m)
	case done:
		s.counts.ops = collective.SumCounts(s.counts.ops, m.ops)
		s.counts.dropped += m.dropped
		if s.done++; s.done < s.ranks {
			return
		}
		if err := s.reports.incomplete(false); err != nil {
			ctx.Send(ctx.Parent(), failed{err})
			return
		}
		ctx.Send(ctx.Parent(), done{s.stage, s.counts})
	}
}

func (s *stage) spawn(ctx actor.Context, i int) {
	name := fmt.Sprintf("rank.%d", i)
	w := who{path: s.run.rankPath(i), rank: i, part: "shell " + name}
	if _, err := ctx.SpawnNamed(s.run.props(w, func() actor.Actor { return s.actorOf(i, w.path) }), name); err != nil {
		panic(fmt.Errorf("spawning %s: %w", w.path, err))
	}
}

// actorOf is what stands at a rank's place in the tree.
func (s *stage) actorOf(i int, path string) actor.Actor {
	if s.run.job.Recovery != nil {
		return &keeper{run: s.run, rank: i}
	}
	return &rank{run: s.run, rank: i, life: life{n: 1, path: path}}
}

// repeated says whether a rank has reported this before: after a restart it goes through steps again, and must tell the same.
// A rank's reports of a kind come in the order of steps.
func (s *stage) repeated(m report, key reportKey) (bool, error) {
	if s.run.job.Recovery == nil || s.run.collects() {
		return false, nil
	}
	n, _ := noteOf(m.event)
	sum, at := sha256.Sum256(messages.CBOR(n)), rankReport{m.rank, key}
	of := rankKind{m.rank, key.kind}
	last, ok := s.known[of]
	if !ok || key.step > last {
		s.known[of], s.told[at] = key.step, sum
		delete(s.told, rankReport{m.rank, reportKey{step: key.step - reportsAheadMax, kind: key.kind}})
		return false, nil
	}
	if before, ok := s.told[at]; ok && before != sum {
		return true, &RepeatError{Rank: m.rank, What: key.String(), Event: m.event.String()}
	}
	return true, nil
}

// report passes events on: steps when all ranks have reported them, others as they come.
func (s *stage) report(ctx actor.Context, m report) {
	key, merged := keyOf(m.event)
	if !merged {
		ctx.Send(ctx.Parent(), m)
		return
	}
	switch again, err := s.repeated(m, key); {
	case err != nil:
		ctx.Send(ctx.Parent(), failed{err})
		return
	case again:
		return
	}
	all, err := s.reports.add(key, m.rank-s.first, m)
	switch {
	case err != nil:
		ctx.Send(ctx.Parent(), failed{err})
	case all != nil:
		ctx.Send(ctx.Parent(), gathered{s.stage, key, all})
	}
}
