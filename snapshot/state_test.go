package snapshot

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/mesh"
	"phalanx/recovery"
)

func sample() State {
	return State{Local: []byte("weights"),
		Groups: map[mesh.Axis]collective.GroupState{mesh.TP: {Programs: []collective.ProgramState{{Program: 1, Seq: 5, Puts: []uint64{0, 2}}}}},
		At:     recovery.State{Step: 4, Sent: map[recovery.Edge]uint64{{Peer: 1, Chan: 2}: 3}, Need: map[recovery.Edge]uint64{{Peer: 1, Chan: 2}: 9}}}
}

func TestStateOfUndoesSections(t *testing.T) {
	s := sample()
	sections := s.Sections()
	require.Len(t, sections, 3)
	got, err := StateOf(sections)
	require.NoError(t, err)
	require.Equal(t, s, got)

	_, err = StateOf(sections[:2])
	require.ErrorContains(t, err, "found 2 sections, expected 3")
	_, err = StateOf([][]byte{nil, {1}, sections[2]})
	require.ErrorContains(t, err, "the groups' section: at byte 0")
	_, err = StateOf([][]byte{nil, sections[1], {1}})
	require.ErrorContains(t, err, "the edges' section: at byte 0")
}

// TestLayout pins the bytes: a later version must read what this one wrote.
func TestLayout(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, encode(&b, Head{Build: 0x0102030405060708, Rank: 0x11121314, Step: 0x21222324, Incarnation: 0x31323334}, [][]byte{[]byte("123456789"), nil}))
	require.Equal(t, []byte{'P', 'x', 'S', 'n', 1, 0, 2, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,
		9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, b.Bytes()[:44])
	require.Equal(t, []byte{'1', '2', '3', '4', '5', '6', '7', '8', '9',
		0x83, 0x92, 0x06, 0xe3, // CRC-32C of "123456789" is the well-known check value 0xe3069283
	}, b.Bytes()[48:])
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	if err := encode(&b, Head{Build: 1, Rank: 2, Step: 3, Incarnation: 4}, sample().Sections()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:30])
	f.Fuzz(func(t *testing.T, file []byte) {
		f, err := decode(file)
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, encode(&again, f.head, f.sections))
		require.Equal(t, file, again.Bytes())
	})
}
