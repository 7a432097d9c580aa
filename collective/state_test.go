package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A group that is restored numbers its messages as the one whose state it has.
func TestGroupsGoOnWhereTheyStood(t *testing.T) {
	a, b := two()
	exchange := func(a, b *Group, i int) Outgoing {
		m := begun(t, a, put(1, []byte{1}, i))
		_, _, err := b.Deliver(m.Header, m.Payload)
		require.NoError(t, err)
		_, done, err := b.Begin(0, get(0, make([]byte, 1), i))
		require.NoError(t, err)
		require.NotNil(t, done)
		return m
	}
	for i := range 3 {
		exchange(a, b, i)
	}
	a2, b2 := two()
	a2.Restore(a.State())
	b2.Restore(b.State())
	first := exchange(a, b, 3)
	second := exchange(a2, b2, 3)
	require.Equal(t, first, second)
	require.EqualValues(t, 3, first.Header.Seq)

	_, _, err := b.Begin(0, get(0, make([]byte, 1), 9))
	require.NoError(t, err)
	require.Panics(t, func() { b.State() })
}
