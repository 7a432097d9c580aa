package collective

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
)

// TestGroupsLayout pins the bytes: a later version must read what this one wrote.
func TestGroupsLayout(t *testing.T) {
	s := GroupState{Programs: []ProgramState{{Program: 2, Seq: 0x0102030405060708, Puts: []uint64{9}}},
		Counts: []OpCount{{Axis: 1, Tag: 0x1112, Kind: 3, Depth: 0x21222324, Count: 5, Bytes: -1}}}
	b := EncodeGroups(map[mesh.Axis]GroupState{1: s})
	require.Equal(t, []byte{
		1, 0, 0, 0, 1,
		1, 0, 0, 0, 2, 8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
		1, 0, 0, 0, 1, 0x12, 0x11, 3, 0x24, 0x23, 0x22, 0x21, 5, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
	}, b)
	for n := range b {
		_, err := DecodeGroups(b[:n])
		var c *messages.CursorError
		require.True(t, errors.As(err, &c), "cut to %d bytes", n)
	}
	_, err := DecodeGroups(append(b, 0))
	require.EqualError(t, err, "at byte 58: found 1 more bytes, expected the end")
	_, err = DecodeGroups([]byte{0xff, 0xff, 0xff, 0xff, 0})
	require.EqualError(t, err, "at byte 4: found a list of 4294967295 elements in 1 bytes, expected at most 0")
}

func TestDecodeGroupsUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := map[mesh.Axis]GroupState{}
		for a := range mesh.AxisCount {
			if !rapid.Bool().Draw(t, "split") {
				continue
			}
			var s GroupState
			for range rapid.IntRange(0, 3).Draw(t, "programs") {
				s.Programs = append(s.Programs, ProgramState{nn.Program(rapid.Byte().Draw(t, "program")), rapid.Uint64().Draw(t, "seq"),
					rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(t, "puts")})
			}
			for range rapid.IntRange(0, 3).Draw(t, "counts") {
				s.Counts = append(s.Counts, OpCount{mesh.Axis(a), nn.Tag(rapid.Uint16().Draw(t, "tag")), nn.OpKind(rapid.Byte().Draw(t, "kind")),
					int(rapid.Uint16().Draw(t, "depth")), rapid.Int64().Draw(t, "count"), rapid.Int64().Draw(t, "bytes")})
			}
			groups[mesh.Axis(a)] = s
		}
		got, err := DecodeGroups(EncodeGroups(groups))
		require.NoError(t, err)
		require.Equal(t, groups, got)
	})
}

func FuzzDecodeGroups(f *testing.F) {
	f.Add(EncodeGroups(map[mesh.Axis]GroupState{0: {Programs: []ProgramState{{1, 2, []uint64{3}}}, Counts: []OpCount{{Tag: 4}}}, 3: {}}))
	f.Add([]byte{1, 0, 0, 0, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, err := DecodeGroups(b)
		if err != nil {
			var c *messages.CursorError
			require.True(t, errors.As(err, &c))
			return
		}
		require.Equal(t, b, EncodeGroups(groups))
	})
}
