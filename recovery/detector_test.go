package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Four ranks, heartbeats every 10, steps of 5. Rank 2 is silent from 50 on; 1 waits for 2, 0 for 1: they are no culprits.
func TestSilentRankIsTheSuspect(t *testing.T) {
	d := NewDetector(4, 10, 30)
	d.Usual(5)
	require.Empty(t, d.Suspects(90))
	require.Len(t, d.Suspects(91), 4, "nobody ever came")
	for now := int64(0); now <= 200; now += 10 {
		for r, waits := range [][]int{{1}, {2}, nil, {2}} {
			if r == 2 && now > 50 {
				continue
			}
			progress := uint64(now)
			if now > 50 {
				progress = 50
			}
			d.Heard(Beat{Rank: r, Incarnation: 1, Progress: progress, WaitsFor: waits}, now)
		}
	}
	require.Empty(t, d.Suspects(110))
	require.Equal(t, []Suspicion{{Rank: 2, For: 150}}, d.Suspects(200))
	require.Equal(t, "rank 2 has been silent for 150", d.Suspects(200)[0].String())
}

// Rank 1 is alive and does not move, and waits for nobody.
func TestHungRankIsTheSuspect(t *testing.T) {
	d := NewDetector(3, 10, 0)
	d.Usual(5)
	for now := int64(0); now <= 300; now += 10 {
		d.Heard(Beat{Rank: 0, Incarnation: 1, Progress: 7, WaitsFor: []int{1}}, now)
		d.Heard(Beat{Rank: 1, Incarnation: 1, Progress: 9}, now)
		d.Heard(Beat{Rank: 2, Incarnation: 1, Progress: 7, WaitsFor: []int{0}}, now)
		d.Heard(Beat{Rank: 1, Incarnation: 0, Progress: uint64(now)}, now) // an earlier life
	}
	require.Empty(t, d.Suspects(100))
	require.Equal(t, []Suspicion{{Rank: 1, Hung: true, For: 101}}, d.Suspects(101)[:1])
	require.Len(t, d.Suspects(301), 1)
}

// A circle of waits has no root outside: its lowest rank stands for it. Who waits for the circle does not.
func TestCircleHasOneSuspect(t *testing.T) {
	d := NewDetector(4, 10, 0)
	d.Usual(1)
	for r, waits := range [][]int{{3}, {2}, {3}, {1}} {
		d.Heard(Beat{Rank: r, Incarnation: 1, WaitsFor: waits}, 0)
	}
	require.Equal(t, []Suspicion{{Rank: 1, Hung: true, For: 30}}, d.Suspects(30))
}

func TestBudget(t *testing.T) {
	b := &Budget{RankMax: 3, JobMax: 5, Window: 100, Backoff: []int64{0, 7, 20}, PoisonMax: 3}
	require.Equal(t, Verdict{Restart: true}, b.Died(1, "a", 0, "step 1"))
	require.Equal(t, Verdict{Restart: true, Wait: 7}, b.Died(1, "a", 10, "step 2"))
	require.Equal(t, Verdict{Restart: true, Wait: 20}, b.Died(1, "a", 20, "step 2"))
	require.Contains(t, b.Died(1, "a", 30, "step 3").Why, "rank 1 has died 4 times within recovery.restart_window_s, recovery.rank_restarts allows 3")
	require.Equal(t, Verdict{Restart: true, Wait: 20}, b.Died(1, "a", 115, ""), "two of five are long ago")
	require.True(t, b.Died(1, "a", 500, "step 2").Poison, "three times at step 2")

	b = &Budget{RankMax: 3, JobMax: 2, Window: 100, Backoff: []int64{0}, PoisonMax: 3}
	for r := range 4 {
		require.True(t, b.Died(r, "a", 0, "").Restart, "one host, one cause")
	}
	require.True(t, b.Died(4, "b", 0, "").Restart)
	require.Contains(t, b.Died(5, "c", 1, "").Why, "recovery.job_restarts allows 2")
}
