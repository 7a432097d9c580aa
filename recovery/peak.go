package recovery

import "math"

// AfterAll is the step of a message that is sent when the programs have ended: no generation frees it.
const AfterAll = math.MaxUint32

// Peak is the most bytes that a log has held at once. It holds what was sent since the generation, so the bytes are at most
// those of the messages of its steps.
type Peak struct {
	Bytes       int64
	First, Last uint32 // the steps, from 0, that messages in it may have been of
}

// Steps is how many steps there are from First to Last; 0 of a log that has held nothing.
func (p Peak) Steps() int {
	if p.Bytes == 0 {
		return 0
	}
	return int(p.Last) - int(p.First) + 1
}

// hold counts a message that the log has taken.
func (r *Rank) hold(m Message) {
	if step := m.Header.Step; step != AfterAll {
		r.first, r.last = min(r.first, step), max(r.last, step) // one may be computed again that a commit has freed
	}
	r.bytes += int64(len(m.Payload))
	if r.bytes > r.peak.Bytes {
		r.peak = Peak{r.bytes, r.first, r.last}
	}
}
