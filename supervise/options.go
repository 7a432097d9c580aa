package supervise

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"phalanx/recovery"
)

// The usual patience.
const (
	IntervalDefault  = 100 * time.Millisecond // between heartbeats
	GraceMaxDefault  = 60 * time.Second       // a cold start on a loaded machine loads a snapshot of any size
	GraceMinDefault  = 5 * time.Second
	HungFirstDefault = 10 * time.Minute // the first step of a large model
	HungMinDefault   = 10 * time.Second // a checkpoint on a slow disk
)

// Options are those of a supervisor.
type Options struct {
	Name    string // no two supervisors, not even two lives of one, have the same; default: host, process and time
	Workers []Worker
	Budget  *recovery.Budget // times in nanoseconds; default recovery.NewBudget

	Interval  time.Duration // between heartbeats
	GraceMax  time.Duration // for the first heartbeat, while start-ups are not known
	GraceMin  time.Duration // when they are known to be short
	HungFirst time.Duration // without progress, while steps are not known
	HungMin   time.Duration // when they are known to be short

	Event  func(Event) // what happens, told from one goroutine; nil: nobody asks
	Logger *zap.Logger
}

func (o Options) complete() (Options, error) {
	if len(o.Workers) == 0 {
		return o, fmt.Errorf("supervise: found no workers, expected at least one")
	}
	if o.Name == "" {
		o.Name = uniqueName()
	}
	if o.Budget == nil {
		o.Budget = recovery.NewBudget()
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Interval, IntervalDefault}, {&o.GraceMax, GraceMaxDefault}, {&o.GraceMin, GraceMinDefault}, {&o.HungFirst, HungFirstDefault}, {&o.HungMin, HungMinDefault}} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	return o, nil
}
