package natslink

import (
	"encoding/binary"
	"fmt"
)

// creditChansMax bounds the body of a credit to less than the smallest piece of any server.
const creditChansMax = 64

const (
	creditFixed   = 8 + 8 + 2
	creditPerChan = 2 + 8
)

// encode writes the body of a credit: pieces u64, bytes u64, channels u16, then for each: channel u16, credited u64.
func (t *totals) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, creditFixed+creditPerChan*len(t.chans))
	b = le.AppendUint64(b, t.pieces)
	b = le.AppendUint64(b, t.bytes)
	b = le.AppendUint16(b, uint16(len(t.chans)))
	for _, c := range t.chans {
		b = le.AppendUint16(b, c.id)
		b = le.AppendUint64(b, c.credited)
	}
	return b
}

// decodeTotals reads the body of a credit, whose checksum is known to be right.
func decodeTotals(b []byte) (totals, error) {
	le := binary.LittleEndian
	if len(b) < creditFixed {
		return totals{}, fmt.Errorf("credit body: found %d bytes, expected at least %d", len(b), creditFixed)
	}
	t := totals{pieces: le.Uint64(b), bytes: le.Uint64(b[8:])}
	n := int(le.Uint16(b[16:]))
	if b = b[creditFixed:]; len(b) != n*creditPerChan {
		return totals{}, fmt.Errorf("credit body: found %d bytes for %d channels, expected %d", len(b), n, n*creditPerChan)
	}
	for ; len(b) > 0; b = b[creditPerChan:] {
		t.chans = append(t.chans, chanTotal{le.Uint16(b), le.Uint64(b[2:])})
	}
	return t, nil
}
