package recovery

import (
	"encoding/binary"
	"fmt"

	"phalanx/messages"
)

// A State as bytes, little-endian: step u32; then Sent and Need, each as a list: edges u32, and for each, ascending: peer u16,
// channel u16, number u64.
const edgeBytes = 2 + 2 + 8

// Encode writes a state. The same state gives the same bytes.
func (s State) Encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, s.Step)
	return appendNumbers(appendNumbers(b, s.Sent), s.Need)
}

func appendNumbers(b []byte, numbers map[Edge]uint64) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(numbers)))
	for _, e := range edges(numbers) {
		b = le.AppendUint16(b, e.Peer)
		b = le.AppendUint16(b, e.Chan)
		b = le.AppendUint64(b, numbers[e])
	}
	return b
}

// DecodeState reads what Encode wrote. The error is a *messages.CursorError.
func DecodeState(b []byte) (State, error) {
	c := messages.ReadFrom(b)
	s := State{Step: c.U32()}
	s.Sent, s.Need = numbersIn(c), numbersIn(c)
	if err := c.End(); err != nil {
		return State{}, err
	}
	return s, nil
}

func numbersIn(c *messages.Cursor) map[Edge]uint64 {
	numbers := map[Edge]uint64{}
	var last Edge
	for i := range c.Count(edgeBytes) {
		e := Edge{Peer: c.U16(), Chan: c.U16()}
		if i > 0 && last.Compare(e) >= 0 {
			c.Fail(fmt.Sprintf("found edge %s after %s, expected ascending ones", e, last))
			break
		}
		last, numbers[e] = e, c.U64()
	}
	return numbers
}
