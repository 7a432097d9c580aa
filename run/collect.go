package run

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/actors"
	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/supervise"
	"phalanx/transport/natslink"
	"phalanx/transport/natslink/plane"
)

// train runs the workers and collects what they report.
func (l *launch) train(ctx context.Context) (*actors.Result, error) {
	ctx, l.cancel = context.WithCancelCause(ctx)
	defer l.cancel(nil)
	network, err := natslink.Start(ctx, l.spawn.links(l.j, 1))
	if err != nil {
		return nil, err
	}
	if err := l.watch(ctx); err != nil {
		return nil, errors.Join(err, network.Close())
	}
	aj := l.j.actorJob(network)
	aj.Part, aj.Hook = &actors.Part{}, nil
	listen := l.j.listen
	var one sync.Mutex
	aj.Listen = func(e messages.Event) {
		one.Lock()
		defer one.Unlock()
		listen(e)
		if step, ok := e.(messages.StepReport); ok {
			l.serverFaults(step.Step + 2)
		}
	}
	l.wait.Go(func() { l.look(ctx) })
	l.wait.Go(func() { l.announce(ctx) })
	l.serverFaults(l.j.first() + 1)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for e := range l.telling {
			one.Lock()
			listen(e)
			one.Unlock()
		}
	}()
	result, err := actors.Run(ctx, aj)
	if err == nil {
		l.lastFigures(ctx)
	}
	l.plane.Stop("the run is over")
	l.countAlarms(ctx)
	l.cancel(errRunOver)
	l.mu.Lock()
	l.over = true // the subscription ends some time later, and nobody listens to what it would tell
	l.mu.Unlock()
	l.wait.Wait()
	close(l.telling)
	<-told
	if verdict := (*VerdictError)(nil); errors.As(context.Cause(ctx), &verdict) {
		err = verdict
	}
	if err = errors.Join(err, l.failed); err == nil {
		l.unused, err = l.unusedFaults()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if result == nil {
		result = &actors.Result{}
	}
	result.Restarts = l.restarts
	for _, r := range l.recoveries {
		result.Replayed += uint64(r.Replayed)
		result.Duplicates += uint64(r.Dropped)
	}
	return result, err
}

// countAlarms asks how often a process was suspected that lived.
func (l *launch) countAlarms(run context.Context) {
	ctx, cancel := context.WithTimeout(run, recordPatience)
	defer cancel()
	n, err := l.plane.FalseAlarms(ctx)
	if err != nil && run.Err() == nil {
		l.log.Warn("false alarms are not counted", zap.Error(err))
	}
	l.mu.Lock()
	l.falseAlarms = n
	l.mu.Unlock()
}

var errRunOver = errors.New("the run is over")

// VerdictError is the end of a run that its supervisors have decided.
type VerdictError struct {
	Code int // exit code
	Why  string
}

func (e *VerdictError) Error() string { return e.Why }

// watch starts the agent, the supervisors, and what listens to them.
func (l *launch) watch(ctx context.Context) error {
	stop, err := l.plane.Beats(l.heard)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, stop)
	workers := make([]int, l.spawn.Procs)
	for w := range workers {
		workers[w] = w
	}
	agent, err := supervise.NewAgent(l.plane, supervise.AgentOptions{Host: hostName, Workers: workers, Start: l.startWorker,
		Started: l.started, Logger: l.log})
	if err != nil {
		return err
	}
	l.wait.Go(func() {
		if err := agent.Run(ctx); err != nil {
			l.log.Error("workers are left", zap.Error(err))
		}
	})
	l.wait.Go(func() {
		_ = l.plane.WatchVerdict(ctx, func(v plane.Verdict) { l.cancel(&VerdictError{v.Code, v.Why}) })
	})
	if n := l.j.s.Recovery.Supervisors; n > 1 {
		for i := range n {
			l.minders = append(l.minders, l.keep(fmt.Sprintf("supervisor-%d", i+1), "supervisor", l.dir, "--index", strconv.Itoa(i)))
		}
		return nil
	}
	s, err := supervise.New(l.plane, l.spawn.supervisor(l.j))
	if err != nil {
		return err
	}
	l.wait.Go(func() {
		if _, err := s.Run(ctx); err != nil && ctx.Err() == nil {
			l.log.Error("the supervisor has ended", zap.Error(err))
		}
	})
	return nil
}

// supervisor are the options of a supervisor of the run.
func (s *spawn) supervisor(j *job) supervise.Options {
	r := &j.s.Recovery
	b := recovery.NewBudget()
	b.RankMax, b.JobMax, b.Window = r.RankRestarts, r.JobRestarts, int64(r.RestartWindowS*float64(time.Second))
	o := supervise.Options{Budget: b, Interval: time.Duration(r.HeartbeatMs) * time.Millisecond, Logger: j.o.Logger}
	for w := range s.Procs {
		o.Workers = append(o.Workers, supervise.Worker{Ranks: s.ranksOf(w, j.s.Sizes().World()), Host: s.Host})
	}
	return o
}
