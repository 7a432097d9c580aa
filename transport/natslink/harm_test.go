package natslink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/transport"
	"phalanx/transport/faulty"
)

// everywhere are rules for all frames of a run.
func everywhere(r faulty.Rule) faulty.Rule {
	r.From, r.To, r.Last = faulty.Any, faulty.Any, 1<<31
	return r
}

// TestExactlyOnceUnderHarm: 5 % of all frames, pieces and control alike, are lost, more come twice, late or damaged, one
// way is cut for a while, and links begin new lives while the old ones still send. Every message arrives once, in order,
// with its bytes.
func TestExactlyOnceUnderHarm(t *testing.T) {
	s := external(t, nil)
	rules := []faulty.Rule{
		everywhere(faulty.Rule{Seed: 11, Drop: 0.05, Duplicate: 0.05, Reorder: 0.03, Corrupt: 0.03}),
		{From: 0, To: 1, First: 20, Last: 30, Seed: 12, Partition: 150 * time.Millisecond},
		{From: 2, To: faulty.Any, First: 5, Last: 15, Seed: 13, Delay: 5 * time.Millisecond},
	}
	w := newTraffic(3, 2, 48, func(src, dst, ch, i int) int { return (i*7 + dst) % 40 * 250 * (1 + ch) })
	var wires []*faulty.Wire
	live := func(c *client, haunt bool) {
		wire := faulty.NewWire(rules, c.inc+1)
		wires = append(wires, wire)
		c.live(t, Options{URL: s.ClientURL(), Run: "harm", PieceBytes: 4 << 10, tick: 10 * time.Millisecond, Outage: time.Second, Wire: wire}, haunt)
	}
	for _, c := range w.clients {
		live(c, false)
	}
	next := 0
	w.run(t, func(done float64) {
		if next < 4 && done*6 > float64(next+1) {
			live(w.clients[next%3], next%2 == 0)
			next++
		}
	})
	require.Equal(t, 4, next)
	require.Positive(t, w.stats().Lost)
	require.Positive(t, w.stats().Corrupt)
	var sum faulty.Counts
	for _, wire := range wires {
		c := wire.Counts()
		sum.Dropped += c.Dropped
		sum.Duplicated += c.Duplicated
		sum.Reordered += c.Reordered
		sum.Corrupted += c.Corrupted
		sum.Delayed += c.Delayed
		sum.Partitioned += c.Partitioned
	}
	for _, n := range []uint64{sum.Dropped, sum.Duplicated, sum.Reordered, sum.Corrupted, sum.Delayed, sum.Partitioned} {
		require.Positive(t, n, "%+v", sum)
	}
	t.Logf("%+v; %+v", sum, w.stats())
}

// TestLateFramesKeepTheirOrder: those of one time go as they came, whatever the timers do.
func TestLateFramesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := &lateFrames{}, time.Now()
		var went []int
		done := make(chan struct{})
		after := rapid.SliceOfN(rapid.IntRange(1, 3), 1, 20).Draw(t, "after")
		for i, ms := range after {
			q.add(transport.Flight{At: now.Add(time.Duration(ms) * 300 * time.Microsecond)}, func([]byte) {
				if went = append(went, i); len(went) == len(after) {
					close(done)
				}
			})
		}
		<-done
		q.end()
		q.add(transport.Flight{At: now}, func([]byte) { t.Error("sent after the end") })
		require.Empty(t, q.list)
		last := map[int]int{}
		for _, i := range went {
			require.GreaterOrEqual(t, i, last[after[i]])
			last[after[i]] = i
		}
	})
}
