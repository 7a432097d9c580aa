package replay

import (
	"fmt"

	"phalanx/collective"
)

// diverge ends the replay at a difference.
func (n *node) diverge(d *Divergence) {
	if n.ended == nil {
		n.result.Divergence = d
	}
	n.end(errStop)
}

// Name is the message's operation, or "".
func (d *Divergence) Name() string {
	switch d.What {
	case OfMessage, OfMore, OfLess, OfLives:
		return collective.NameIn(d.Header).String()
	}
	return ""
}

// Error is the divergence in a sentence.
func (d *Divergence) Error() string {
	at := fmt.Sprintf("message %d of edge %s, %s", d.Number, d.Edge, d.Name())
	text := ""
	switch d.What {
	case OfMessage:
		text = fmt.Sprintf("%s, had crc %08x and has %08x", at, d.Recorded, d.Replayed)
	case OfMore:
		text = fmt.Sprintf("%s, crc %08x, is sent and was not", at, d.Replayed)
	case OfLess:
		text = fmt.Sprintf("%s, crc %08x, was sent and is not", at, d.Recorded)
	case OfInput:
		text = "its programs do not fit what it received"
	case OfState:
		text = fmt.Sprintf("the state after step %d had crc %08x and has %08x", d.Step, d.Recorded, d.Replayed)
	case OfWeights:
		text = fmt.Sprintf("the weights after step %d differ", d.Step)
	case OfSteps:
		text = "the run has another length"
	case OfLives:
		text = "the recording contradicts itself"
	}
	if d.Detail != "" {
		text += ": " + d.Detail
	}
	return text
}
