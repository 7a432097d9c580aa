package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServersThatAreAway(t *testing.T) {
	var a away
	now := time.Unix(1e9, 0)
	after := func(d time.Duration, there bool) absence { now = now.Add(d); return a.look(now, there) }
	each := func(n int, there bool) (said []absence) {
		for range n {
			if is := after(time.Second, there); is != awayNot {
				said = append(said, is)
			}
		}
		return said
	}
	require.Empty(t, each(3, true))
	require.Empty(t, each(4, false), "a reconnect")
	require.Empty(t, each(2, true))
	require.Equal(t, []absence{awayLong}, each(200, false), "once")
	require.Empty(t, each(1, true))
	require.Equal(t, []absence{awayLong}, each(6, false), "again")
	require.Equal(t, awayNot, after(time.Hour, false), "this process stood still")
	require.Empty(t, each(200, false))
	require.Equal(t, []absence{awayTooLong}, each(150, false))
	require.Empty(t, each(10, false))
}
