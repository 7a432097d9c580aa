package run

import (
	"os"
	"time"

	"go.uber.org/zap"

	"phalanx/config"
	"phalanx/messages"
)

// Options are how to launch; what to train is the scenario.
type Options struct {
	NATS string // URL of a running server; "" starts an embedded one
	// Procs spreads the ranks over that many processes, which are started by Self; 0: all ranks are in this process.
	Procs int
	// Self is how this program is started again: its path, and arguments in front of the verb. nil: as it was.
	Self   []string
	Out    string // folder for logs, report and checkpoints; "": only where the scenario says
	Listen Listener
	// Resume goes on from the newest checkpoint of checkpoint.save, if there is one, whatever checkpoint.load says.
	Resume bool
	// Stop, once closed, ends a run that has a folder for checkpoints after the step in progress, with a checkpoint; any
	// other at once. nil: nobody asks.
	Stop <-chan struct{}
	// Ask, when something comes, lets a run of several processes tell who waits for whom. nil: nobody asks.
	Ask <-chan struct{}
	// OnAbandon is given what is to be done when this process ends before the run has: temporary files go. The returned function
	// says that there is nothing to be done any more. nil: nobody cares.
	OnAbandon func(cleanup func()) (done func())
	Logger    *zap.Logger
	// ComputeClock is the time that Timing.ComputeMs is measured by, read on the one OS thread on which all ranks then compute, one
	// turn after the other; for runs of one process without recovery. nil: wall clock, and turns as they come.
	ComputeClock func() time.Duration

	worker bool // this process is one of several
}

// self is Self or its default.
func (o *Options) self() ([]string, error) {
	if len(o.Self) > 0 {
		return o.Self, nil
	}
	path, err := os.Executable()
	return []string{path}, err
}

// Listener is told what happens, one call at a time. Any field may be nil.
type Listener struct {
	Start func(Plan)                  // once, before the first step
	Step  func(StepFigures, Timing)   // every step
	Eval  func(EvalFigures)           // every validation pass
	Event func(messages.Event)        // everything else, printable in one line
	Saved func(path string, step int) // a checkpoint was written
}

// Timing is how long things took. Wall clock, for people only.
type Timing struct {
	StepMs     float64
	TokensPerS float64 // of this step
	ComputeMs  float64 // that all ranks together spent computing; the rest of the step is exchange and waiting
	DoneSteps  int
	Steps      int
}

// Plan is what a scenario comes to, before it runs.
type Plan struct {
	Scenario config.Scenario
	Lines    []string // as `phalanx plan` prints them
}
