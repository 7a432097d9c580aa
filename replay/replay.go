// Package replay runs one rank of a recorded run again alone: its real programs, in one goroutine, from a snapshot, fed with what it
// received. Everything that it sends must be what it sent then, its states what its snapshots hold, its weights what they were.
package replay

import (
	"errors"
	"fmt"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// Options say what is to be replayed.
type Options struct {
	Place collective.Place
	Tape  *recording.Tape
	// From is the snapshot to begin with; its zero value is the beginning of the run.
	From snapshot.State
	// Programs makes the rank's programs in the world that it is given.
	Programs func(World) ([]func(nn.Comm), error)
	// StopAt ends the replay at a point; nil: it goes to the end.
	StopAt *Point
	// Step is told every step that is done, with its figures. nil: nobody is.
	Step func(messages.StepDone)
}

// World is what the programs of a replay have around them.
type World struct {
	Local    []byte // nil: the beginning of the run
	Boundary func(step int, local func() []byte)
	Stop     func(step int) bool // the run ended after fewer steps than its scenario says
	Emit     func(messages.Event)
	Weights  func(sum [32]byte) // of the rank, after the last step
	// Point is passed by the programs, with the step and the microbatch, both from 0.
	Point func(name string, step, microbatch int)
}

// Result is what a replay has found.
type Result struct {
	Rank     int
	From     uint32 // step it began at
	Steps    uint32 // steps that are done
	Sent     int    // messages that were sent as they were then
	Received int    // messages that were given again
	States   int    // snapshots that were compared
	Weights  bool   // the weights after the last step were compared
	// Divergence is the first thing that was not as it was; nil: nothing.
	Divergence *Divergence
	// Stopped is where the replay was stopped; nil: it was not.
	Stopped *Stopped
	// LeftOut are snapshots that could not be read, and so were not compared.
	LeftOut []error
	// Ended says why the replay ended before the programs, or did not although it should have; "": they ended.
	Ended string
}

// errStop unwinds a replay.
var errStop = errors.New("the replay stops here")

// Run replays. The error is damage of the recording, a *recording.LackError if it has a hole, or a *ProgramError; a divergence is a result.
func Run(o Options) (Result, error) {
	n, err := newNode(o)
	if err != nil {
		return n.result, err
	}
	defer n.rank.Stop()
	if c := o.Tape.Conflict; c != nil {
		d := &Divergence{What: OfLives, Step: c.First.Step, Edge: c.Edge(), Number: c.First.Log, Header: c.First, Recorded: c.First.PayloadCRC, Replayed: c.Second.PayloadCRC, Detail: c.Error()}
		n.diverge(d)
		return n.result, nil
	}
	if lack := o.Tape.Lacks(o.From.At); lack != nil {
		return n.result, lack
	}
	switch err := n.run(); {
	case errors.Is(err, errStop):
		return n.result, nil
	case err != nil:
		return n.result, err
	}
	return n.result, nil
}

// ProgramError is a program that panics in a replay.
type ProgramError struct {
	Rank    int
	Program nn.Program
	Site    nn.Site
	Value   any
	Stack   []byte
}

func (e *ProgramError) Error() string {
	return fmt.Sprintf("rank %d, program %s, %s: panic: %v", e.Rank, collective.ProgramName(e.Program), collective.Reached(e.Site), e.Value)
}

// Unwrap is the panic's value, if it is an error.
func (e *ProgramError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// What is what diverges.
type What string

// The things that can diverge.
const (
	OfMessage What = "message" // it sends another message than it sent
	OfMore    What = "more"    // it sends a message that it did not send
	OfLess    What = "less"    // it does not send a message that it sent
	OfInput   What = "input"   // it waits for a message that it did not receive
	OfState   What = "state"   // its state at a step is another than its snapshot
	OfWeights What = "weights" // its weights after the last step are others
	OfLives   What = "lives"   // two of its lives have recorded one message differently
	OfSteps   What = "steps"   // it ends after another number of steps
)

// Divergence is the first difference between a replay and what was recorded.
type Divergence struct {
	What     What
	Step     uint32          // from 0
	Edge     recovery.Edge   // of a message
	Number   uint64          // on that edge
	Header   messages.Header // of a message, as it was recorded, or as it is sent where nothing was
	Recorded uint32          // CRC-32C of the payload, or of the state
	Replayed uint32
	Detail   string // what else there is to say
}
