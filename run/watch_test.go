package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/transport/natslink/plane"
)

// A run stands still when no rank has made progress for the whole limit, and that is told once until one moves again. A rank
// that says the same again has not moved.
func TestStandingStill(t *testing.T) {
	const limit = 5 * time.Second
	w := watched{signs: map[int]sign{}, progress: map[int]uint64{}, alarms: map[string]bool{}}
	at := func(s float64) time.Time { return time.Unix(100, 0).Add(time.Duration(s * float64(time.Second))) }
	beat := func(s float64, rank int, progress uint64) {
		w.take(plane.Beat{Worker: rank, Incarnation: 1, Ranks: []plane.RankBeat{{Rank: rank, Progress: progress, WaitsFor: []int{1 - rank}}}}, at(s))
	}
	require.False(t, w.still(at(99), limit), "nobody has said anything yet")
	beat(0, 0, 1)
	beat(0.04, 1, 1)
	require.False(t, w.still(at(0.05), limit), "both wait, each in a heartbeat of its own")
	beat(4, 0, 1)
	require.False(t, w.still(at(5.03), limit))
	require.True(t, w.still(at(5.04), limit))
	require.True(t, w.stands(at(5.04), limit))
	require.False(t, w.stands(at(6), limit), "told")
	require.True(t, w.still(at(6), limit))
	beat(7, 1, 2)
	require.False(t, w.still(at(7), limit))
	require.True(t, w.stands(at(12), limit), "again")
}
