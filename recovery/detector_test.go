package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// watch is a detector of workers with one rank each, which have begun at time 0, with heartbeats every 10.
func watchOf(world int) *Detector {
	o := DetectorOptions{Interval: 10, GraceMax: 30, GraceMin: 5, HungFirst: 1000, HungMin: 1}
	for r := range world {
		o.Workers = append(o.Workers, []int{r})
	}
	d := NewDetector(o)
	for r := range world {
		d.Begin(r, 1, 0, 0)
	}
	return d
}

// hear is a heartbeat of a worker with one rank.
func hear(d *Detector, r RankBeat, now int64) {
	d.Heard(Beat{Worker: r.Rank, Incarnation: 1, Ranks: []RankBeat{r}}, now)
}

// Four ranks, heartbeats every 10. Rank 2 is silent from 50 on; 1 waits for 2, 0 for 1: they are no culprits.
func TestSilentRankIsTheSuspect(t *testing.T) {
	d := watchOf(4)
	require.Empty(t, d.Suspects(90))
	require.Len(t, d.Suspects(91), 4, "nobody ever came")
	for now := int64(0); now <= 200; now += 10 {
		for r, waits := range [][]int{{1}, {2}, nil, {2}} {
			if r == 2 && now > 50 {
				continue
			}
			at := uint64(min(now, 50))
			hear(d, RankBeat{Rank: r, Step: uint32(at / 5), Progress: at, WaitsFor: waits}, now)
		}
	}
	require.EqualValues(t, 5, d.steps.median())
	require.Empty(t, d.Suspects(110))
	require.Equal(t, []Suspicion{{Worker: 2, Rank: -1, For: 150}}, d.Suspects(200))
	require.Equal(t, "worker 2 has been silent for 150", d.Suspects(200)[0].String())
	d.End(2)
	require.Empty(t, d.Suspects(200))
}

// Rank 1 is alive and does not move, and waits for nobody. The others wait for it.
func TestHungRankIsTheSuspect(t *testing.T) {
	d := watchOf(3)
	d.steps.add(5)
	for now := int64(0); now <= 300; now += 10 {
		hear(d, RankBeat{Rank: 0, Progress: 7, WaitsFor: []int{1}}, now)
		hear(d, RankBeat{Rank: 1, Progress: 9}, now)
		hear(d, RankBeat{Rank: 2, Progress: 7, WaitsFor: []int{0}}, now)
		d.Heard(Beat{Worker: 1, Ranks: []RankBeat{{Rank: 1, Progress: uint64(now)}}}, now)                 // an earlier life
		d.Heard(Beat{Worker: 0, Incarnation: 1, Ranks: []RankBeat{{Rank: 1, Progress: uint64(now)}}}, now) // no rank of this worker
		d.Heard(Beat{Worker: 9, Incarnation: 1}, now)
	}
	require.Empty(t, d.Suspects(100))
	require.Equal(t, []Suspicion{{Worker: 1, Rank: 1, Hung: true, For: 101}}, d.Suspects(101)[:1])
	require.Len(t, d.Suspects(301), 1)
	require.Equal(t, "rank 1 has not moved for 301 and waits for nobody", d.Suspects(301)[0].String())
	hear(d, RankBeat{Rank: 1, Progress: 9, Done: true}, 310)
	require.Empty(t, d.Suspects(311), "it has nothing more to do")
}

// A circle of waits has no root outside: its lowest rank stands for it. Who waits for the circle does not.
func TestCircleHasOneSuspect(t *testing.T) {
	d := watchOf(4)
	d.steps.add(1)
	for r, waits := range [][]int{{3}, {2}, {3}, {1}} {
		hear(d, RankBeat{Rank: r, WaitsFor: waits}, 0)
	}
	require.Equal(t, []Suspicion{{Worker: 1, Rank: 1, Hung: true, For: 30}}, d.Suspects(30))
	hear(d, RankBeat{Rank: 3, Progress: 1, WaitsFor: []int{1}}, 20)
	require.Empty(t, d.Suspects(30), "one of the circle has just moved: it may move the others")
	require.Len(t, d.Suspects(41), 1)
}

// A rank that waited long for a dead one is not hung in the moment in which it gets what it waited for.
func TestWaitingIsNotHanging(t *testing.T) {
	d := watchOf(2)
	d.steps.add(5)
	for now := int64(0); now < 500; now += 10 {
		hear(d, RankBeat{Rank: 0, Progress: 7, WaitsFor: []int{1}}, now)
		hear(d, RankBeat{Rank: 1, Progress: uint64(now)}, now)
	}
	hear(d, RankBeat{Rank: 0, Progress: 7}, 500)
	hear(d, RankBeat{Rank: 1, Progress: 500}, 500)
	require.Empty(t, d.Suspects(510))
}

// A rank that holds on purpose does not hang, nor in the moment in which it is let go.
func TestHoldingIsNotHanging(t *testing.T) {
	d := watchOf(1)
	d.steps.add(5)
	for now := int64(0); now < 500; now += 10 {
		hear(d, RankBeat{Rank: 0, Progress: 7, Done: true}, now)
	}
	require.Empty(t, d.Suspects(500))
	hear(d, RankBeat{Rank: 0, Progress: 7}, 500)
	require.Empty(t, d.Suspects(510))
	for now := int64(510); now <= 610; now += 10 {
		hear(d, RankBeat{Rank: 0, Progress: 7}, now)
	}
	require.Len(t, d.Suspects(611), 1)
}

// A worker with three ranks is suspected once, and one rank that moves does not excuse another.
func TestWorkerOfSeveralRanks(t *testing.T) {
	d := NewDetector(DetectorOptions{Workers: [][]int{{0, 1, 2}, {3}}, Interval: 10, GraceMax: 30, HungFirst: 50})
	d.Begin(0, 4, 0, 0)
	d.Begin(1, 1, 0, 0)
	for now := int64(0); now <= 100; now += 10 {
		d.Heard(Beat{Worker: 0, Incarnation: 4, Ranks: []RankBeat{{Rank: 0, Progress: uint64(now)}, {Rank: 1}, {Rank: 2}}}, now)
		d.Heard(Beat{Worker: 1, Incarnation: 1, Ranks: []RankBeat{{Rank: 3, WaitsFor: []int{0}}}}, now)
	}
	require.Equal(t, []Suspicion{{Worker: 0, Rank: 1, Hung: true, For: 100}}, d.Suspects(100))
	require.Equal(t, []Suspicion{{Worker: 0, Rank: -1, For: 61}, {Worker: 1, Rank: -1, For: 61}}, d.Suspects(161))
}

// Late heartbeats make patient, up to a bound; quick start-ups make impatient.
func TestPatienceAdapts(t *testing.T) {
	d := watchOf(1)
	require.EqualValues(t, 30, d.grace())
	hear(d, RankBeat{}, 4)
	require.EqualValues(t, 16, d.grace(), "four times the longest start-up")
	for now := int64(14); now < 100; now += 10 {
		hear(d, RankBeat{Progress: uint64(now)}, now)
	}
	require.EqualValues(t, 60, d.patience(&d.workers[0]))
	hear(d, RankBeat{Progress: 1}, 144)
	require.EqualValues(t, 60, d.patience(&d.workers[0]), "once is no habit")
	hear(d, RankBeat{Progress: 2}, 224)
	require.EqualValues(t, 100, d.patience(&d.workers[0]), "twice the longest silence but one")
	hear(d, RankBeat{Progress: 3}, 1000)
	hear(d, RankBeat{Progress: 4}, 2000)
	require.EqualValues(t, 300, d.patience(&d.workers[0]), "no longer than that")
	for i := range int64(gapsKept) {
		hear(d, RankBeat{Progress: uint64(i)}, 2010+10*i)
	}
	require.EqualValues(t, 60, d.patience(&d.workers[0]), "and it is forgotten")
	d.Begin(0, 2, 3000, 3000)
	require.Empty(t, d.Suspects(3016+60))
	require.Len(t, d.Suspects(3016+61), 1)
}

// Who was asleep blames nobody for it.
func TestForgive(t *testing.T) {
	d := watchOf(2)
	hear(d, RankBeat{Rank: 0}, 0)
	hear(d, RankBeat{Rank: 1}, 0)
	require.Len(t, d.Suspects(2000), 2)
	d.Forgive(2000)
	require.Empty(t, d.Suspects(2060))
	require.Len(t, d.Suspects(2061), 2)
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
	require.Equal(t, "rank 7 has died once within recovery.restart_window_s, recovery.rank_restarts allows 0", (&Budget{Window: 100, PoisonMax: 3}).Died(7, "a", 0, "").Why)
}

// Deaths of one host within a moment have one cause; what is remembered is what still counts.
func TestBudgetOfRecords(t *testing.T) {
	b := &Budget{RankMax: 9, JobMax: 2, Window: 100, Backoff: []int64{0}, PoisonMax: 3, Together: 5, Whom: func(r int) string { return "worker " + string(rune('A'+r)) }}
	before := []Death{{Rank: 1, Host: "a", At: 13}, {Rank: 0, Host: "a", At: 10}, {Rank: 1, Host: "b", At: 12}, {Rank: 2, Host: "a", At: 15}}
	require.True(t, b.Judge(before, Death{Rank: 3, Host: "b", At: 17}).Restart, "two causes, one on each host")
	require.Contains(t, b.Judge(before, Death{Rank: 3, Host: "a", At: 16}).Why, "ranks have died 3 times")
	require.Contains(t, b.Judge([]Death{{Rank: 1, Site: "x"}, {Rank: 1, At: 1, Site: "x"}, {Rank: 2, At: 1, Site: "x"}}, Death{Rank: 1, At: 900, Site: "x"}).Why, "worker B has died 3 times at x")

	var many []Death
	for i := range 40 {
		many = append(many, Death{At: int64(i), Site: "s"}, Death{At: int64(i)})
	}
	require.Len(t, b.Keep(many, 99), 80, "all are within the window")
	kept := b.Keep(many, 1000)
	require.Len(t, kept, sitesKept)
	require.EqualValues(t, 24, kept[0].At)
}
