package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
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
}

func newStage(r *run, s int) *stage {
	n := r.job.Sizes.World() / r.job.Sizes.PP
	return &stage{run: r, stage: s, first: s * n, ranks: n, reports: gather[report]{members: n, first: s * n, per: 1}}
}

// Receive implements actor.Actor.
func (s *stage) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		for i := range s.ranks {
			s.spawn(ctx, s.first+i)
		}
	case ready:
		if s.ready++; s.ready == s.ranks {
			ctx.Send(ctx.Parent(), ready{s.stage})
		}
	case start, ask:
		for _, k := range ctx.Children() {
			ctx.Send(k, m)
		}
	case report:
		s.report(ctx, m)
	case failed:
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
	if _, err := ctx.SpawnNamed(s.run.props(w, func() actor.Actor { return &rank{run: s.run, rank: i} }), name); err != nil {
		panic(fmt.Errorf("spawning %s: %w", w.path, err))
	}
}

// report passes events on: steps when all ranks have reported them, others as they come.
func (s *stage) report(ctx actor.Context, m report) {
	key, merged := keyOf(m.event)
	if !merged {
		ctx.Send(ctx.Parent(), m)
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
