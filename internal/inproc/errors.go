package inproc

import (
	"fmt"
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
	var statuses []collective.Status
	left := &LeftoverError{Messages: j.sent - j.read}
	for _, r := range j.ranks {
		waits = waits || !r.Over()
		statuses = append(statuses, r.Statuses()...)
		left.Values = append(left.Values, r.Unreceived()...)
	}
	switch {
	case waits:
		return &DeadlockError{Statuses: statuses, Diagnosis: collective.Diagnose(statuses)}
	case left.Messages > 0 || len(left.Values) > 0:
		return left
	}
	return nil
}
