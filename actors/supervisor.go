package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"phalanx/collective"
	"phalanx/messages"
)

// supervisor is the root: it opens the barrier, merges reports, watches for standstill and ends the run. It is never
// on the way of data.
type supervisor struct {
	run     *run
	ready   int // stages
	reports gather[gathered]
	watch   *watch
	timer   *time.Timer
	waits   []*time.Timer // before ranks are started again
	done    int           // stages
	result  Result
}

func newSupervisor(r *run) *supervisor {
	stages, ranks := r.job.Sizes.PP, r.job.Sizes.World()
	w := newWatch(ranks, r.job.StallTimeout)
	w.members = len(r.local())
	return &supervisor{run: r, reports: gather[gathered]{members: stages, per: ranks / stages}, watch: w}
}

// Receive implements actor.Actor.
func (s *supervisor) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		s.started(ctx)
		return
	case *actor.Stopping:
		if s.timer != nil {
			s.timer.Stop()
		}
		for _, t := range s.waits {
			t.Stop()
		}
		return
	}
	if s.run.isOver() {
		switch m := ctx.Message().(type) {
		case failed:
			s.run.fail(m.err)
		case died:
			s.run.fail(m.err)
		}
		return
	}
	switch m := ctx.Message().(type) {
	case ready:
		if s.ready++; s.ready == len(s.run.stages()) {
			s.toStages(ctx, start{})
		}
	case report:
		s.run.job.Listen(m.event)
	case gathered:
		s.merge(m)
	case failed:
		s.run.fail(m.err)
	case died:
		s.died(ctx, m)
	case done:
		s.finish(m)
	case tick:
		s.tick(ctx)
	case programAnswer:
		s.judge(s.watch.program(m))
	case groupAnswer:
		s.judge(s.watch.group(m))
	}
}

func (s *supervisor) started(ctx actor.Context) {
	self, system := ctx.Self(), ctx.ActorSystem()
	s.timer = time.AfterFunc(s.period(), func() { system.Root.Send(self, tick{}) })
	for _, i := range s.run.stages() {
		name := fmt.Sprintf("stage.%d", i)
		w := who{path: s.run.stagePath(i), rank: -1, part: "shell " + name}
		if _, err := ctx.SpawnNamed(s.run.props(w, func() actor.Actor { return newStage(s.run, i) }), name); err != nil {
			panic(fmt.Errorf("spawning %s: %w", w.path, err))
		}
	}
	if s.run.collects() {
		w := who{path: supervisorName + "/" + collectorName, rank: -1, part: "shell " + collectorName}
		if _, err := ctx.SpawnNamed(s.run.props(w, func() actor.Actor { return newCollector(s.run) }), collectorName); err != nil {
			panic(fmt.Errorf("spawning %s: %w", w.path, err))
		}
	}
}

// statusEvery is the time between two looks at the ranks of a process that tells of them in heartbeats.
const statusEvery = 100 * time.Millisecond

func (s *supervisor) period() time.Duration {
	if s.run.part() != nil {
		return statusEvery
	}
	return s.watch.period()
}

// tick asks everybody below where it stands. Whether a run of several processes stands still no single one can say.
func (s *supervisor) tick(ctx actor.Context) {
	s.timer.Reset(s.period())
	if s.run.collects() {
		return
	}
	if p := s.run.part(); p != nil {
		p.Status.asked(s.watch.statuses(), s.watch.silent(p.Ranks))
	} else {
		s.atPains()
	}
	s.toStages(ctx, ask{round: s.watch.ask(time.Now()), to: ctx.Self()})
}

func (s *supervisor) toStages(ctx actor.Context, m any) {
	for _, child := range ctx.Children() {
		ctx.Send(child, m)
	}
}

// merge makes a report of a step that all stages have gathered.
func (s *supervisor) merge(m gathered) {
	stages, err := s.reports.add(m.key, m.stage, m)
	if err != nil {
		s.run.fail(err)
		return
	}
	if stages == nil {
		return
	}
	var ranks []report
	for _, st := range stages {
		ranks = append(ranks, st.ranks...)
	}
	event, err := merge(m.key, ranks, s.run.place)
	if err != nil {
		s.run.fail(err)
		return
	}
	if _, step := event.(messages.StepReport); step {
		s.run.steps.Add(1)
	}
	s.run.job.Listen(event)
}

// finish ends the run when all stages are done.
func (s *supervisor) finish(m done) {
	s.result.Ops = collective.SumCounts(s.result.Ops, m.ops)
	s.result.Duplicates += m.dropped
	if s.done++; s.done < s.run.job.Sizes.PP {
		return
	}
	if err := s.reports.incomplete(false); err != nil {
		s.run.fail(err)
		return
	}
	s.run.tally(&s.result)
	s.run.end(&s.result, nil)
}

// atPains says whether the network is making a connection again. Then everybody may wait: either it comes back, or a link
// fails and says why.
func (s *supervisor) atPains() bool {
	trouble := s.run.trouble()
	if trouble == nil {
		return false
	}
	s.watch.forgive()
	s.run.log.Warn("the network is at pains", zap.Error(trouble))
	return true
}

// died starts a dead rank again, if the budget allows it.
func (s *supervisor) died(ctx actor.Context, m died) {
	rank := m.err.Place.Rank
	v := s.run.job.Recovery.Budget.Died(rank, "", time.Now().UnixNano(), m.site())
	s.run.log.Info("rank died", zap.Int("rank", rank), zap.Uint32("life", m.life), zap.Error(m.err), zap.Bool("restart", v.Restart))
	if !v.Restart {
		s.run.fail(&RestartError{Poison: v.Poison, Why: v.Why, Last: m.err})
		return
	}
	s.run.restarts.Add(1)
	system, keeper := ctx.ActorSystem(), s.run.system.NewLocalPID(s.run.rankPath(rank))
	if v.Wait == 0 {
		ctx.Send(keeper, reborn{})
		return
	}
	s.waits = append(s.waits, time.AfterFunc(time.Duration(v.Wait), func() { system.Root.Send(keeper, reborn{}) }))
}

func (s *supervisor) judge(stalled bool) {
	if !stalled || s.run.part() != nil || s.atPains() {
		return
	}
	err := s.watch.stall()
	err.Reconnects = s.run.reconnects()
	for _, st := range err.Statuses {
		s.run.log.Debug("stalled", zap.Stringer("status", st))
	}
	s.run.fail(err)
}
