package actors

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/transport"
)

// ReportChan is the channel of what ranks report to the collector. No axis has that number.
const ReportChan = 0xffff

// note is one message from a rank to the collector. Exactly one field is set. Two lives of a rank send the same bytes, so
// there is no time in it.
type note struct {
	Step   *messages.StepDone `cbor:"1,keyasint,omitempty"`
	Eval   *messages.EvalDone `cbor:"2,keyasint,omitempty"`
	Saved  *messages.Saved    `cbor:"3,keyasint,omitempty"`
	Shards *messages.Shards   `cbor:"4,keyasint,omitempty"`
	// Begun is the boundary before a step: everything of earlier steps has been reported.
	Begun *uint32   `cbor:"5,keyasint,omitempty"`
	Done  *doneNote `cbor:"6,keyasint,omitempty"`
}

// doneNote says that all programs of a rank are done.
type doneNote struct {
	Ops []collective.OpCount `cbor:"1,keyasint"`
}

// noteOf is the note of an event; false if the collector does not want it.
func noteOf(e messages.Event) (note, bool) {
	switch e := e.(type) {
	case messages.StepDone:
		return note{Step: &e}, true
	case messages.EvalDone:
		return note{Eval: &e}, true
	case messages.Saved:
		return note{Saved: &e}, true
	case messages.Shards:
		return note{Shards: &e}, true
	}
	return note{}, false
}

// event is the inverse; nil if the note is no event.
func (n note) event() messages.Event {
	switch {
	case n.Step != nil:
		return *n.Step
	case n.Eval != nil:
		return *n.Eval
	case n.Saved != nil:
		return *n.Saved
	case n.Shards != nil:
		return *n.Shards
	}
	return nil
}

// message puts a note on its way to the collector. step is the step that the rank is in.
func (n note) message(collector int, step uint32) transport.Message {
	b := messages.CBOR(n)
	return transport.Message{Header: messages.Header{Dst: uint16(collector), Chan: ReportChan, Step: step, Layer: messages.NoLayer,
		NDim: 1, Shape: [4]uint32{uint32(len(b))}}, Payload: b}
}

func readNote(b []byte) (n note, err error) {
	if err := cbor.Unmarshal(b, &n); err != nil {
		return n, fmt.Errorf("a report that cannot be read: %w", err)
	}
	return n, nil
}
