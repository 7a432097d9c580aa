package actors

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"phalanx/collective"
	"phalanx/nn"
)

// ErrInterrupted is what errors.Is finds when a run was cancelled; the error itself is an *InterruptedError.
var ErrInterrupted = errors.New("interrupted")

// InterruptedError says that the context ended the run.
type InterruptedError struct {
	Cause error
	Steps int      // merged step reports until then
	Busy  []string // programs whose turn had not ended when Run returned
}

func (e *InterruptedError) Error() string {
	s := fmt.Sprintf("interrupted after %d steps: %v", e.Steps, e.Cause)
	if len(e.Busy) > 0 {
		s += "; still computing: " + strings.Join(e.Busy, ", ")
	}
	return s
}

// Unwrap makes errors.Is work for ErrInterrupted and for the context's error.
func (e *InterruptedError) Unwrap() []error { return []error{ErrInterrupted, e.Cause} }

// RankError says that a rank failed: where, in which part, how far it was, and why.
type RankError struct {
	Place collective.Place
	Part  string  // "program stage", "program mtp.2", "group tp", "link", "programs", "shell rank.3"
	Site  nn.Site // of the program's last operation; Phase 0 if there was none or no program is concerned
	Cause error
	Stack []byte // of a panic
	// Consequences are failures that came after this one.
	Consequences []error
}

// Error reads "rank 3 (tp 1 dp 1) failed in program mtp.2, last collective at step 4 …: panic: …".
func (e *RankError) Error() string {
	at := ""
	if strings.HasPrefix(e.Part, "program ") {
		at = ", " + collective.Reached(e.Site)
	}
	s := fmt.Sprintf("%s failed in %s%s: %v", e.Place, e.Part, at, e.Cause)
	if n := len(e.Consequences); n > 0 {
		s += fmt.Sprintf(" (and %d consequences)", n)
	}
	return s
}

// Unwrap is the cause.
func (e *RankError) Unwrap() error { return e.Cause }

// PanicError is a recovered panic.
type PanicError struct {
	Value any
	Where string // the function that panicked, with file and line; empty if the stack does not say
}

// found says whether a check of the program has found something, which is no failure of the program.
func (e *PanicError) found() bool {
	_, ok := e.Value.(nn.Finding)
	return ok
}

func (e *PanicError) Error() string {
	if e.found() {
		return fmt.Sprint(e.Value)
	}
	if e.Where == "" {
		return fmt.Sprintf("panic: %v", e.Value)
	}
	return fmt.Sprintf("panic: %v [%s]", e.Value, e.Where)
}

// Unwrap is the value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ShellError says that an actor itself failed, not a program in it: a fault of this package or of a listener.
type ShellError struct {
	Actor   string // its path
	Message string // what it was receiving; the runtime does not keep it
	Cause   *PanicError
	Stack   []byte
}

func (e *ShellError) Error() string {
	return fmt.Sprintf("actor %s failed on %s: %v", e.Actor, e.Message, e.Cause)
}

// Unwrap is the panic.
func (e *ShellError) Unwrap() error { return e.Cause }

// StallError says that every rank waits and nothing has moved for the stall timeout.
type StallError struct {
	Quiet    time.Duration
	Text     string // of collective.Diagnose
	Statuses []collective.Status
	// Reconnects are connections that the network has lost and made again since it began: a message may be lost with one.
	Reconnects uint64
}

func (e *StallError) Error() string {
	if e.Reconnects > 0 {
		return fmt.Sprintf("nothing has moved for %s, and the network has lost %d connections and made them again: %s", e.Quiet, e.Reconnects, e.Text)
	}
	return fmt.Sprintf("nothing has moved for %s: %s", e.Quiet, e.Text)
}

// DivergenceError says that a figure that must be the same bits on all ranks is not.
type DivergenceError struct {
	Step          int
	What          string           // "grad_norm", "lr"
	First, Second collective.Place // two ranks that differ
	FirstValue    float64
	SecondValue   float64
	Differ        []int // all ranks that differ from First
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("replicas have diverged at step %d: %s is %.17g on %s and %.17g on %s (ranks %v differ from rank %d); it must be the same bits on every rank",
		e.Step, e.What, e.FirstValue, e.First, e.SecondValue, e.Second, e.Differ, e.First.Rank)
}

// RepeatError says that a rank, started again, reported other figures of a step than before.
type RepeatError struct {
	Rank  int
	What  string // step 3, validation after step 2 …
	Event string // of the later life
}

func (e *RepeatError) Error() string {
	return fmt.Sprintf("rank %d reported %s again with other figures than in an earlier life, now: %s; a rank must compute the same bits in every life", e.Rank, e.What, e.Event)
}

// ReportError says that ranks have not reported the same steps.
type ReportError struct {
	What            string // "step 4", "validation after step 4"
	Have, Miss      []int  // ranks
	AheadOfTheOther bool   // the limit on unmerged reports was reached; else all ranks have finished
}

func (e *ReportError) Error() string {
	why := "although all have finished"
	if e.AheadOfTheOther {
		why = fmt.Sprintf("although others are %d steps further", reportsAheadMax)
	}
	return fmt.Sprintf("%s was reported by ranks %v and not by ranks %v, %s", e.What, e.Have, e.Miss, why)
}

// RestartError says that a rank died and is not started again.
type RestartError struct {
	Poison bool   // it has died at this place again and again
	Why    string // with the rank, and the place if that is why
	Last   *RankError
}

func (e *RestartError) Error() string { return fmt.Sprintf("%s; the last time: %v", e.Why, e.Last) }

// Unwrap is the last failure.
func (e *RestartError) Unwrap() error { return e.Last }

// LogError says that a rank keeps more of what it has sent than it may.
type LogError struct {
	Bytes, Limit int64
	Since        uint32 // the last step that all ranks can go back to
}

func (e *LogError) Error() string {
	return fmt.Sprintf("found %d bytes of sent messages that another rank may ask for again, expected at most %d (recovery.log_bytes): step %d is the last of which all ranks have a snapshot; raise log_bytes, or set snapshot_every or snapshot_bytes lower",
		e.Bytes, e.Limit, e.Since)
}

// panicked makes an error of a recovered value and its stack.
func panicked(v any, stack []byte) *PanicError {
	return &PanicError{Value: v, Where: frame(string(stack))}
}

// frame finds the function that panicked in a stack: the first one below panic that is not the runtime's.
func frame(stack string) string {
	lines := strings.Split(stack, "\n")
	for i := range lines {
		if !strings.HasPrefix(lines[i], "panic(") {
			continue
		}
		for i += 2; i+1 < len(lines); i += 2 {
			if strings.HasPrefix(lines[i], "runtime.") {
				continue
			}
			fn, _, _ := strings.Cut(path.Base(lines[i]), "(")
			at, _, _ := strings.Cut(path.Base(strings.TrimSpace(lines[i+1])), " ")
			return fn + " " + at
		}
	}
	return ""
}
