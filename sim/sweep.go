package sim

import (
	"errors"
	"fmt"
)

// selfCheck is how often a sweep runs a seed twice: it checks the simulator itself.
const selfCheck = 50

// Summary is what many schedules did.
type Summary struct {
	Schedules int            // that were run
	Faults    map[string]int // events by kind
	Restarts  int
	Jumps     int
	Messages  int
	Failure   *Error // of the first seed that failed; nil: none
}

// Sweep runs the seeds from a first one up to but without another, until one fails. Every 50th is run twice, and must do
// the same.
func (j *Job) Sweep(from, until uint64, o Options) Summary {
	s := Summary{Faults: map[string]int{}}
	for seed := from; seed < until && s.Failure == nil && (o.Stop == nil || !o.Stop()); seed++ {
		o.Seed = seed
		r, err := j.Run(o)
		s.add(r)
		if err == nil && seed%selfCheck == 0 {
			err = j.again(o, r)
		}
		if err != nil {
			errors.As(err, &s.Failure)
		}
	}
	return s
}

func (s *Summary) add(r Result) {
	s.Schedules++
	s.Restarts += r.Restarts
	s.Jumps += r.Jumps
	s.Messages += r.Messages
	for _, e := range r.Events {
		s.Faults[e.Kind.String()]++
	}
}

// again runs a schedule a second time.
func (j *Job) again(o Options, first Result) error {
	r, err := j.Run(o)
	if err == nil && r.Trace == first.Trace {
		return nil
	}
	return &Error{Options: o, Broken: I9, At: r.End, Events: r.Events, Trace: r.Trace,
		Cause: fmt.Errorf("run twice it left the traces %016x and %016x (%v)", first.Trace, r.Trace, err)}
}
