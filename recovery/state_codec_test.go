package recovery

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/messages"
)

// TestStateLayout pins the bytes: a later version must read what this one wrote.
func TestStateLayout(t *testing.T) {
	s := State{Step: 0x01020304, Sent: map[Edge]uint64{{2, 0x0102}: 7, {1, 9}: 8}, Need: map[Edge]uint64{}}
	b := s.Encode()
	require.Equal(t, []byte{4, 3, 2, 1,
		2, 0, 0, 0, 1, 0, 9, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0}, b)
	for n := range b {
		_, err := DecodeState(b[:n])
		var c *messages.CursorError
		require.True(t, errors.As(err, &c), "cut to %d bytes", n)
	}
	b[8], b[20] = 2, 1
	_, err := DecodeState(b)
	require.EqualError(t, err, "at byte 24: found edge 1/0x0102 after 2/0x0009, expected ascending ones")
}

func TestDecodeStateUndoesEncode(t *testing.T) {
	numbers := rapid.MapOf(rapid.Custom(func(t *rapid.T) Edge { return Edge{rapid.Uint16().Draw(t, "peer"), rapid.Uint16().Draw(t, "chan")} }), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		s := State{rapid.Uint32().Draw(t, "step"), numbers.Draw(t, "sent"), numbers.Draw(t, "need")}
		got, err := DecodeState(s.Encode())
		require.NoError(t, err)
		require.Equal(t, s, got)
	})
}

func FuzzDecodeState(f *testing.F) {
	f.Add(State{3, map[Edge]uint64{{1, 2}: 3}, map[Edge]uint64{{4, 5}: 6}}.Encode())
	f.Add([]byte{0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			var c *messages.CursorError
			require.True(t, errors.As(err, &c))
			return
		}
		require.Equal(t, b, s.Encode())
	})
}
