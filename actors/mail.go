package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/transport"
)

// What the actors of a run tell each other. Every message prints in one line.

// Down the tree.
type (
	// start opens the barrier: every rank is there and every link is open.
	start struct{}
	// ask wants the state of everything below, as answers to one actor.
	ask struct {
		round int
		to    *actor.PID
	}
	// askState wants a group's state at the beginning of a step.
	askState struct{ step uint32 }
	// reborn lets a dead rank live again.
	reborn struct{}
	// askCounts wants a group's counts.
	askCounts struct{}
)

// Up the tree.
type (
	// ready says that a rank's groups are there.
	ready struct {
		rank int
		life uint32
	}
	// report is an event of a rank.
	report struct {
		rank  int
		event messages.Event
	}
	// gathered is one step's reports of a stage, ascending by rank.
	gathered struct {
		stage int
		key   reportKey
		ranks []report
	}
	// ended says that a depth's program is done.
	ended struct{ program nn.Program }
	// counts is what a group did.
	counts struct {
		ops     []collective.OpCount
		dropped uint64
	}
	// done says that all programs of a rank, or of a stage, are done.
	done struct {
		of int // rank or stage
		counts
	}
	// died says that a life of a rank has ended in a panic.
	died struct {
		life uint32
		err  *RankError
	}
	// failed ends the run.
	failed struct{ err error }
)

// Between the programs and groups of one rank.
type (
	// begin enters a collective.
	begin struct {
		program nn.Program
		op      *nn.Op
		from    *actor.PID
	}
	// completed says that it is done.
	completed struct{ op *nn.Op }
	// value is what one program sends to another.
	value struct {
		from nn.Program
		sent collective.Sent
	}
	// received is a message from the link.
	received struct{ m transport.Message }
)

// Between the keeper of a rank and the actors of its present life, whose number they say.
type (
	// outgoing is a message for the link.
	outgoing struct {
		life uint32
		m    transport.Message
	}
	// consumed says that messages have been read.
	consumed struct {
		life  uint32
		edges []recovery.Edge
	}
	// localState and groupState are parts of a snapshot.
	localState struct {
		life, step uint32
		local      []byte
	}
	groupState struct {
		life, step uint32
		axis       mesh.Axis
		state      collective.GroupState
	}
	// holding says that the rank waits before a step, having reported the steps before.
	holding struct{ life, step uint32 }
	// control is between the keepers of two ranks.
	control struct{ c recovery.Control }
)

// Answers of a round of questions.
type (
	// programAnswer is where a program stands. parts, set by the Rank, is the number of answers of its rank.
	programAnswer struct {
		round  int
		status collective.Status
		parts  int
	}
	// groupAnswer is what a group misses, by program.
	groupAnswer struct {
		round, rank int
		axis        mesh.Axis
		received    uint64
		missing     map[nn.Program][]int
	}
	// tick asks for the next round.
	tick struct{}
)

func (start) String() string      { return "start" }
func (m ask) String() string      { return fmt.Sprintf("ask round=%d", m.round) }
func (m askState) String() string { return fmt.Sprintf("ask state step=%d", m.step) }
func (reborn) String() string     { return "reborn" }
func (m died) String() string     { return fmt.Sprintf("died life=%d %v", m.life, m.err) }
func (m outgoing) String() string {
	return fmt.Sprintf("outgoing life=%d %s to=%d bytes=%d", m.life, collective.NameIn(m.m.Header), m.m.Header.Dst, len(m.m.Payload))
}
func (m consumed) String() string {
	return fmt.Sprintf("consumed life=%d messages=%d", m.life, len(m.edges))
}
func (m localState) String() string {
	return fmt.Sprintf("state life=%d step=%d bytes=%d", m.life, m.step, len(m.local))
}
func (m groupState) String() string {
	return fmt.Sprintf("state life=%d step=%d group=%s", m.life, m.step, m.axis)
}
func (m holding) String() string  { return fmt.Sprintf("holding life=%d step=%d", m.life, m.step) }
func (m control) String() string  { return "control " + m.c.String() }
func (askCounts) String() string  { return "ask counts" }
func (m ready) String() string    { return fmt.Sprintf("ready rank=%d", m.rank) }
func (m report) String() string   { return fmt.Sprintf("report rank=%d %s", m.rank, m.event) }
func (m gathered) String() string { return fmt.Sprintf("gathered stage=%d %s", m.stage, m.key) }
func (m ended) String() string    { return "ended program=" + collective.ProgramName(m.program) }
func (m counts) String() string {
	return fmt.Sprintf("counts sorts=%d dropped=%d", len(m.ops), m.dropped)
}
func (m done) String() string      { return fmt.Sprintf("done of=%d", m.of) }
func (m failed) String() string    { return fmt.Sprintf("failed %v", m.err) }
func (m begin) String() string     { return fmt.Sprintf("begin program=%d %s", m.program, m.op) }
func (m completed) String() string { return "completed " + m.op.String() }
func (m value) String() string {
	return fmt.Sprintf("value %q from=%s", m.sent.Name, collective.ProgramName(m.from))
}
func (m received) String() string {
	return fmt.Sprintf("received %s seq=%d from=%d bytes=%d", collective.NameIn(m.m.Header), m.m.Header.Seq, m.m.Header.Src, len(m.m.Payload))
}
func (m programAnswer) String() string { return fmt.Sprintf("answer round=%d %s", m.round, m.status) }
func (m groupAnswer) String() string {
	return fmt.Sprintf("answer round=%d rank=%d group=%s received=%d missing=%v", m.round, m.rank, m.axis, m.received, m.missing)
}
func (tick) String() string { return "tick" }
