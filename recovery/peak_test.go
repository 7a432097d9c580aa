package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A log remembers the most that it has held, and in which steps that was sent; what the collector has and what a commit frees
// is not in it, and what is computed again after a commit is.
func TestPeakOfTheLog(t *testing.T) {
	const collector = 2
	r := New(Options{Rank: 0, World: 3, Incarnation: 1, Collector: collector}, State{}, 0, []uint32{0})
	r.Start()
	require.Equal(t, Peak{}, r.Stats().Peak)
	require.Zero(t, r.Stats().Peak.Steps())
	say := func(c Control) {
		c.Dst, c.Incarnation = 0, 1
		_, err := r.Control(c)
		require.NoError(t, err)
	}
	commit := func(step uint32) {
		r.Saved(step)
		say(Control{Kind: Durable, Src: 1, Steps: []uint32{step}})
		say(Control{Kind: Durable, Src: collector, Steps: []uint32{step}})
		require.Equal(t, step, r.Generation())
	}
	for step := range 3 {
		send(r, 1, step, 100)
		send(r, collector, step, 10)
	}
	require.Equal(t, Peak{330, 0, 2}, r.Stats().Peak)
	say(Control{Kind: Need, Src: collector, Numbers: map[uint16]uint64{0: 3}})
	require.Equal(t, int64(300), r.Stats().LogBytes)
	send(r, 1, 3, 20)
	require.Equal(t, Peak{330, 0, 2}, r.Stats().Peak, "it holds 320")
	commit(2)
	require.Equal(t, int64(120), r.Stats().LogBytes)
	send(r, 1, 3, 200)
	require.Equal(t, Peak{330, 0, 2}, r.Stats().Peak, "it holds 320 of steps 2 and 3")
	send(r, 1, 4, 11)
	require.Equal(t, Peak{331, 2, 4}, r.Stats().Peak)
	require.Equal(t, 3, r.Stats().Peak.Steps())
	send(r, 1, AfterAll, 1)
	require.Equal(t, Peak{332, 2, 4}, r.Stats().Peak, "what is sent at the end is of no step")

	again := New(Options{Rank: 0, World: 2, Incarnation: 2}, State{Step: 2}, 2, []uint32{2})
	again.Start()
	send(again, 1, 2, 5)
	require.Equal(t, Peak{5, 2, 2}, again.Stats().Peak, "of this life")
	again.Saved(4)
	_, err := again.Control(Control{Kind: Durable, Src: 1, Dst: 0, Incarnation: 1, Steps: []uint32{4}})
	require.NoError(t, err)
	require.Equal(t, uint32(4), again.Generation())
	send(again, 1, 3, 7)
	require.Equal(t, Peak{7, 3, 3}, again.Stats().Peak, "before the generation")
}
