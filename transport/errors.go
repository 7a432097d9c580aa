package transport

import (
	"errors"
	"fmt"
	"strings"
)

// The ways in which a link fails. Test with errors.Is; the error itself is a *LinkError.
var (
	ErrLost         = errors.New("a piece was lost")
	ErrCorrupt      = errors.New("a piece is damaged")
	ErrDisorder     = errors.New("pieces do not fit together")
	ErrForeign      = errors.New("a message is not of this run")
	ErrSlowConsumer = errors.New("the client dropped pieces it had no room for")
	ErrConnection   = errors.New("the connection is gone")
	ErrSilent       = errors.New("the other rank does not answer")
	ErrTooLarge     = errors.New("the message is too large")
	ErrMisuse       = errors.New("the link was used wrongly")
	ErrClosed       = errors.New("the link is closed")
)

// advice is what to do about each kind of failure.
var advice = map[error]string{
	ErrLost:         "restart the run from its last checkpoint",
	ErrCorrupt:      "restart the run from its last checkpoint; if it happens again, look at memory and network",
	ErrDisorder:     "run the same build everywhere, and one process for each rank",
	ErrForeign:      "start all ranks from the same program and scenario, with one run id",
	ErrSlowConsumer: "lower the credits of the link, or give the process more memory and time",
	ErrConnection:   "look whether the NATS server runs, then restart the run from its last checkpoint",
	ErrSilent:       "look whether its process runs, then restart the run from its last checkpoint",
	ErrTooLarge:     "shard the tensor further, or raise the size of the pieces",
}

// Unknown is the rank of a LinkError that cannot tell, and its channel when none is meant.
const Unknown = -1

// LinkError is a failure of a link: between whom, on which channel, what was found and what was expected.
type LinkError struct {
	Kind            error // one of the Err… values
	Src, Dst        int   // ranks, or Unknown; without a Src it is about the whole link of Dst
	Chan            int   // channel, or Unknown
	Found, Expected string
	Cause           error // what an error of a lower layer said, or nil
}

// Error reads "rank 1→2 channel 0x0301: a piece was lost: found edge 17, expected 16; restart …".
func (e *LinkError) Error() string {
	var b strings.Builder
	switch {
	case e.Src == Unknown:
		fmt.Fprintf(&b, "rank %s", rankName(e.Dst))
	default:
		fmt.Fprintf(&b, "rank %s→%s", rankName(e.Src), rankName(e.Dst))
	}
	if e.Chan != Unknown {
		fmt.Fprintf(&b, " channel 0x%04x", e.Chan)
	}
	fmt.Fprintf(&b, ": %v", e.Kind)
	if e.Found != "" {
		fmt.Fprintf(&b, ": found %s, expected %s", e.Found, e.Expected)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	if a := advice[e.Kind]; a != "" {
		b.WriteString("; " + a)
	}
	return b.String()
}

// Unwrap makes errors.Is work for the kind and for the cause.
func (e *LinkError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

func rankName(r int) string {
	if r == Unknown {
		return "?"
	}
	return fmt.Sprint(r)
}
