package actors

import (
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
)

// rank is the Rank actor: program 0, and the parent of the rank's groups and depths.
type rank struct {
	*runner  // nil until the barrier has opened
	run      *run
	rank     int
	life     life
	groups   []*actor.PID
	depths   []*actor.PID
	ending   bool      // it stops: the runtime goes on delivering until its children have stopped
	left     int       // programs that are not done
	reporter *reporter // of a run of several processes
	counted  int       // groups that have given their counts
	counts   counts
}

// Receive implements actor.Actor.
func (k *rank) Receive(ctx actor.Context) {
	if k.ending {
		return
	}
	_, k.ending = ctx.Message().(*actor.Stopping)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		k.spawnGroups(ctx)
		ctx.Send(ctx.Parent(), ready{k.rank, k.life.n})
	case start:
		k.start(ctx)
	case ask:
		k.ask(ctx, m)
	case ended:
		k.ended(ctx)
	case counts:
		k.count(ctx, m)
	default:
		if k.runner != nil {
			k.receive(ctx)
		}
	}
}

func (k *rank) spawnGroups(ctx actor.Context) {
	for _, a := range k.run.split() {
		k.groups = append(k.groups, k.spawn(ctx, a.String(), func() actor.Actor { return newGroup(k.run, k.rank, a, k.life) }))
	}
}

// spawn starts a child under its name.
func (k *rank) spawn(ctx actor.Context, name string, produce func() actor.Actor) *actor.PID {
	w := who{path: k.life.path + "/" + name, rank: k.rank, part: "shell " + name, life: k.life}
	pid, err := ctx.SpawnNamed(k.run.props(w, produce), name)
	if err != nil {
		panic(fmt.Errorf("spawning %s: %w", w.path, err))
	}
	return pid
}

// start is the rank's first turn: its programs are made, then all of them begin.
func (k *rank) start(ctx actor.Context) {
	programs, failure := k.programs()
	if failure != nil {
		k.run.lost(k.life, failure)
		return
	}
	pids := []*actor.PID{ctx.Self()}
	k.left = 1
	for p := 1; p < len(programs); p++ {
		pids = append(pids, k.run.system.NewLocalPID(k.life.path+"/"+collective.ProgramName(nn.Program(p))))
	}
	at := member{rank: k.rank, life: k.life, programs: pids, groups: k.run.groupsOf(k.life.path)}
	for p := 1; p < len(programs); p++ {
		if programs[p] == nil {
			continue
		}
		k.left++
		depth := &depth{runner: newRunner(k.run, at, nn.Program(p), programs[p])}
		k.depths = append(k.depths, k.spawn(ctx, collective.ProgramName(nn.Program(p)), func() actor.Actor { return depth }))
	}
	for _, d := range k.depths {
		ctx.Send(d, start{})
	}
	k.runner = newRunner(k.run, at, 0, programs[0])
	k.resume(ctx, nil)
}

// programs asks the job for the rank's programs; whatever happens there is the rank's failure.
func (k *rank) programs() (made []func(nn.Comm), failure *RankError) {
	defer k.run.turnBegan(k.run.place(k.rank).String() + " making its programs")()
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			failure = k.failure(panicked(v, stack))
			failure.Stack = stack
		}
	}()
	made, err := k.make()
	switch {
	case err != nil:
		return nil, k.failure(err)
	case len(made) == 0 || len(made) > programsMax:
		return nil, k.failure(fmt.Errorf("found %d programs, expected 1 to %d: a channel has 8 bits for the program", len(made), programsMax))
	}
	return made, nil
}

// make asks the job.
func (k *rank) make() ([]func(nn.Comm), error) {
	if k.life.keeper == nil {
		return k.run.job.Programs(k.rank, k.run.desk.emitter(k.run.emitter(k.rank)))
	}
	if k.run.livesAgain(k.life.n) {
		k.run.hook(k.rank, between(AfterRestart, k.life.from.At.Step+1))
	}
	l := Life{Incarnation: k.life.n, Local: k.life.from.Local, Boundary: k.boundary()}
	if k.run.part() == nil {
		return k.run.job.Recovery.Programs(k.rank, l, k.run.emitter(k.rank))
	}
	k.reporter = &reporter{run: k.run, keeper: k.life.keeper, life: k.life.n, step: uint32(k.life.from.At.Step)}
	if g := k.run.part().Gate; g != nil {
		l.Ends = k.ends(g)
	}
	return k.run.job.Recovery.Programs(k.rank, l, k.reporter.emit)
}

// programsMax is what Header.Chan holds.
const programsMax = 1 << 8

func (k *rank) failure(cause error) *RankError {
	return &RankError{Place: k.run.place(k.rank), Part: "programs", Cause: cause}
}

// ask answers for program 0 and passes the question on. Before the barrier there is no answer: not stalled.
func (k *rank) ask(ctx actor.Context, m ask) {
	if k.runner == nil {
		return
	}
	k.answer(ctx, m, 1+len(k.depths)+len(k.groups))
	for _, child := range ctx.Children() {
		ctx.Send(child, m)
	}
}

// ended counts the programs that are done; after the last one the groups have done all they will.
func (k *rank) ended(ctx actor.Context) {
	if k.left--; k.left > 0 {
		return
	}
	k.run.log.Debug("rank is done", zap.Int("rank", k.rank))
	if k.run.part() == nil {
		k.run.emitter(k.rank)(messages.Finished{Rank: k.rank})
	}
	for _, g := range k.groups {
		ctx.Send(g, askCounts{})
	}
	k.report(ctx)
}

func (k *rank) count(ctx actor.Context, m counts) {
	k.counted++
	k.counts.ops = collective.SumCounts(k.counts.ops, m.ops)
	k.counts.dropped += m.dropped
	k.report(ctx)
}

// report tells the stage when the rank and its groups are done.
func (k *rank) report(ctx actor.Context) {
	if k.counted == len(k.groups) {
		ctx.Send(ctx.Parent(), done{k.rank, k.counts})
	}
}

// depth is the Depth actor: one MTP depth's program.
type depth struct{ *runner }

// Receive implements actor.Actor.
func (d *depth) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case start:
		d.resume(ctx, nil)
	case ask:
		d.answer(ctx, m, 0)
	default:
		d.receive(ctx)
	}
}
