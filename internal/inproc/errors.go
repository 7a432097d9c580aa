package inproc

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/collective"
	"phalanx/nn"
)

// PanicError says that a program panicked.
type PanicError struct {
	Rank    int
	Program nn.Program
	Site    nn.Site // of its last operation; Phase 0 before the first
	Value   any
	Stack   []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("inproc: %s panicked (site of its last operation: %s): %v\n%s", node{e.Rank, e.Program}, e.Site, e.Value, e.Stack)
}

// Unwrap is the panic's value, if it is an error: a wrong operation panics as *collective.OpError.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// DeadlockError says that nothing can go on while programs wait.
type DeadlockError struct {
	Statuses  []collective.Status // in rank and program order
	Diagnosis string
}

func (e *DeadlockError) Error() string { return "inproc: " + e.Diagnosis }

// LeftoverError says that all programs have returned and something was sent that nobody took.
type LeftoverError struct {
	Messages int      // between ranks
	Values   []string // between programs of a rank
}

func (e *LeftoverError) Error() string {
	text := fmt.Sprintf("inproc: all programs returned and %d messages were never read", e.Messages)
	if len(e.Values) > 0 {
		text += "; values that were never received: " + strings.Join(e.Values, ", ")
	}
	return text
}

// ended is the error of a run in which nothing can go on; nil if all programs returned and took everything.
func (j *job) ended() error {
	waits := false
	statuses := make([]collective.Status, len(j.nodes))
	for i, n := range j.nodes {
		statuses[i] = j.routines[n].Status()
		if q, ok := j.pending[n].(collective.Collective); ok {
			statuses[i].Missing = j.groups[groupKey{n.rank, q.Op.Axis}].Missing(n.program)
		}
		waits = waits || statuses[i].State != collective.Finished
	}
	if waits {
		return &DeadlockError{Statuses: statuses, Diagnosis: collective.Diagnose(statuses)}
	}
	left := &LeftoverError{Messages: j.sent - j.read, Values: j.leftValues()}
	if left.Messages > 0 || len(left.Values) > 0 {
		return left
	}
	return nil
}

// leftValues names what stayed in the ports.
func (j *job) leftValues() []string {
	var names []string
	for p, values := range j.ports {
		if len(values) > 0 {
			names = append(names, fmt.Sprintf("%d %q for %s", len(values), p.name, p.to))
		}
	}
	slices.Sort(names)
	return names
}
