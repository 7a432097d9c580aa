package collective

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// The states of a rank's groups as bytes, little-endian: groups u32, and for each, ascending by axis: axis u8; programs u32, and
// for each: program u8, seq u64, members u32, puts to each u64; counts u32, and for each: axis u8, tag u16, kind u8, depth u32,
// count u64, bytes u64.
const (
	groupBytesMin   = 1 + 4 + 4
	programBytesMin = 1 + 8 + 4
	countBytes      = 1 + 2 + 1 + 4 + 8 + 8
)

// EncodeGroups writes the states of a rank's groups. The same states give the same bytes.
func EncodeGroups(groups map[mesh.Axis]GroupState) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(groups)))
	for _, a := range slices.Sorted(maps.Keys(groups)) {
		s := groups[a]
		b = append(b, byte(a))
		b = le.AppendUint32(b, uint32(len(s.Programs)))
		for _, p := range s.Programs {
			b = append(b, byte(p.Program))
			b = le.AppendUint64(b, p.Seq)
			b = le.AppendUint32(b, uint32(len(p.Puts)))
			for _, n := range p.Puts {
				b = le.AppendUint64(b, n)
			}
		}
		b = le.AppendUint32(b, uint32(len(s.Counts)))
		for _, n := range s.Counts {
			b = append(b, byte(n.Axis))
			b = le.AppendUint16(b, uint16(n.Tag))
			b = append(b, byte(n.Kind))
			b = le.AppendUint32(b, uint32(n.Depth))
			b = le.AppendUint64(b, uint64(n.Count))
			b = le.AppendUint64(b, uint64(n.Bytes))
		}
	}
	return b
}

// DecodeGroups reads what EncodeGroups wrote. The error is a *messages.CursorError.
func DecodeGroups(b []byte) (map[mesh.Axis]GroupState, error) {
	c := messages.ReadFrom(b)
	groups := map[mesh.Axis]GroupState{}
	last := -1
	for range c.Count(groupBytesMin) {
		a := c.U8()
		if int(a) <= last || int(a) >= mesh.AxisCount {
			c.Fail(fmt.Sprintf("found axis %d after %d, expected ascending ones below %d", a, last, mesh.AxisCount))
		}
		last = int(a)
		groups[mesh.Axis(a)] = decodeGroup(c)
		if c.Err() != nil {
			break
		}
	}
	if err := c.End(); err != nil {
		return nil, err
	}
	return groups, nil
}

func decodeGroup(c *messages.Cursor) (s GroupState) {
	for range c.Count(programBytesMin) {
		p := ProgramState{Program: nn.Program(c.U8()), Seq: c.U64()}
		for range c.Count(8) {
			p.Puts = append(p.Puts, c.U64())
		}
		s.Programs = append(s.Programs, p)
	}
	for range c.Count(countBytes) {
		s.Counts = append(s.Counts, OpCount{Axis: mesh.Axis(c.U8()), Tag: nn.Tag(c.U16()), Kind: nn.OpKind(c.U8()),
			Depth: int(c.U32()), Count: int64(c.U64()), Bytes: int64(c.U64())})
	}
	return s
}
