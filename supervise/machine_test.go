package supervise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/recovery"
	"phalanx/transport/natslink/plane"
)

// generous is a budget that never ends a run.
func generous() *recovery.Budget {
	b := recovery.NewBudget()
	b.RankMax, b.JobMax, b.PoisonMax = 1_000_000, 1_000_000, 1_000_000
	b.Backoff = []int64{0, 50 * ms}
	return b
}

// One to three supervisors, some of them leading at once, crashing and hearing little, keep workers alive that are killed,
// stopped and hung: no incarnation is ever written twice, and once it is quiet all live and nothing is restarted any more.
func TestSupervisorsKeepWorkersAlive(t *testing.T) {
	t.Parallel()
	const seeds = 40
	restarts, alarms := 0, 0
	for seed := range uint64(seeds) {
		w := newWorld(seed, 1+int(seed%3), 1+int(seed%4), generous())
		w.run(60_000 * ms)
		w.quiet = true
		w.run(60_000 * ms)
		require.Empty(t, w.failures, "seed %d: %+v", seed, w.f)
		require.NoError(t, w.settled(), "seed %d: %+v", seed, w.f)
		before := len(w.minted)
		alarmed := len(w.alarms)
		w.run(30_000 * ms)
		require.Equal(t, before, len(w.minted), "seed %d: restarts without a reason", seed)
		require.Equal(t, alarmed, len(w.alarms), "seed %d", seed)
		restarts += before - len(w.workers)
		alarms += len(w.alarms)
	}
	t.Logf("%d restarts, %d false alarms", restarts, alarms)
	require.Greater(t, restarts, seeds, "there was something to survive")
}

// No worker is ever restarted more often within the window than the budget allows, however many lead and however
// often supervisors forget everything.
func TestBudgetHoldsForAnySupervisors(t *testing.T) {
	t.Parallel()
	verdicts := 0
	for seed := range uint64(40) {
		b := recovery.NewBudget()
		b.RankMax, b.JobMax, b.PoisonMax = 1+int(seed%4), 1000, 1_000_000
		w := newWorld(seed, 3, 3, b)
		w.f.kills = 0.2
		w.run(120_000 * ms)
		require.Empty(t, w.failures, "seed %d", seed)
		for n, list := range w.deaths {
			for i, at := range list {
				within := 0
				for _, o := range list[:i+1] {
					if at-o < b.Window {
						within++
					}
				}
				require.LessOrEqual(t, within, b.RankMax, "seed %d: worker %d: restarts for deaths at %v", seed, n, list)
			}
		}
		if w.verdict != nil {
			require.Equal(t, 4, w.verdict.Code)
			require.Contains(t, w.verdict.Why, "recovery.rank_restarts allows")
			verdicts++
		}
	}
	require.Greater(t, verdicts, 15)
}

// machine is one with two workers of one rank each, which leads, and whose records lie there.
func machine(t *testing.T, b *recovery.Budget) *Machine {
	o, err := Options{Name: "me", Workers: []Worker{{[]int{0}, "h"}, {[]int{1}, "h"}}, Budget: b, HungFirst: time.Second}.complete()
	require.NoError(t, err)
	m := NewMachine(o)
	m.Lead(3, 0, 1<<62)
	require.Empty(t, m.Tick(0).Mint, "what lies in the bucket is not known yet")
	for w := range 2 {
		m.Saw(w, plane.Record{}, 0, 0)
	}
	begun := m.Tick(0).Mint
	require.Len(t, begun, 2)
	require.Equal(t, Wish{Worker: 1, Record: plane.Record{Incarnation: 1, Host: "h", By: "me", Term: 3, Cause: plane.Begun}}, begun[1])
	for w := range 2 {
		r := begun[w].Record
		r.At = time.Unix(0, 0)
		m.Saw(w, r, plane.Revision(w+1), 0)
	}
	require.Empty(t, m.Tick(0))
	return m
}

func TestExitIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, 90*ms)
	e := plane.Exit{Worker: 1, Incarnation: 1, Code: -1, Signal: "SIGKILL", AtNs: 100 * ms}
	m.Exited(e, 101*ms)
	m.Exited(e, 102*ms)
	want := Wish{Worker: 1, After: 2, Record: plane.Record{Incarnation: 2, Host: "h", By: "me", Term: 3, Cause: plane.Killed, Text: "signal SIGKILL",
		SignNs: 100 * ms, DecidedNs: 101 * ms, Deaths: []plane.Death{{AtNs: 100 * ms}}}}
	require.Equal(t, []Wish{want}, m.Tick(103*ms).Mint)
	require.Equal(t, []Wish{want}, m.Tick(104*ms).Mint, "it repeats itself until it sees that it is done")
	m.Follow()
	require.Empty(t, m.Tick(105*ms).Mint)
	m.Saw(1, plane.Record{Incarnation: 2, By: "another", Host: "h"}, 7, 106*ms)
	m.Lead(4, 106*ms, 1<<62)
	m.Exited(e, 107*ms)
	require.Empty(t, m.Tick(108*ms).Mint, "another has done it")
}

func TestStoppedWorkerIsSilent(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	now := int64(0)
	for ; now <= 1000*ms; now += 50 * ms {
		m.Heard(plane.Beat{Worker: 0, Incarnation: 1}, now)
		if now <= 200*ms {
			m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, now)
		}
		if out := m.Tick(now); len(out.Mint) > 0 {
			require.Equal(t, 850*ms, now, "six heartbeats are missing")
			require.Equal(t, plane.Silent, out.Mint[0].Record.Cause)
			require.EqualValues(t, 200*ms, out.Mint[0].Record.SignNs)
			break
		}
	}
	require.Less(t, now, 1000*ms)
	m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, now)
	out := m.Tick(now)
	require.Empty(t, out.Mint, "it lives: the suspicion is withdrawn")
	require.Equal(t, []Alarm{{1, 1}}, out.Alarms)
	m.Saw(1, plane.Record{Incarnation: 2, Cause: plane.Silent, At: time.Unix(0, now)}, 9, now) // but the record was on its way
	m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, now+1)
	require.Empty(t, m.Tick(now+1).Alarms, "it is counted once")
}

// A follower suspects a worker, and then an agent has seen its exit: that is why it is replaced.
func TestExitExplainsSilence(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	m.Follow()
	for now := int64(0); now < 2000*ms; now += 50 * ms {
		m.Heard(plane.Beat{Worker: 0, Incarnation: 1}, now)
		if now == 0 {
			m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, now)
		}
		require.Empty(t, m.Tick(now))
	}
	m.Exited(plane.Exit{Worker: 1, Incarnation: 1, Code: 70, AtNs: 300 * ms}, 2000*ms)
	m.Lead(9, 2000*ms, 1<<62)
	out := m.Tick(2000 * ms).Mint
	require.Len(t, out, 1)
	require.Equal(t, plane.Exited, out[0].Record.Cause)
	require.Equal(t, "exit code 70", out[0].Record.Text)
	require.EqualValues(t, 300*ms, out[0].Record.SignNs)
	require.EqualValues(t, 2000*ms, out[0].Record.LedNs)
}

// Who was asleep itself judges nobody for the time in which it slept.
func TestSleepingSupervisor(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	for w := range 2 {
		m.Heard(plane.Beat{Worker: w, Incarnation: 1}, 0)
	}
	m.Tick(100 * ms)
	require.Empty(t, m.Tick(60_000*ms).Mint)
	for now := 60_050 * ms; now <= 60_600*ms; now += 50 * ms {
		require.Empty(t, m.Tick(now).Mint)
	}
	require.Len(t, m.Tick(60_650*ms).Mint, 2)
}

// A rank that holds at a boundary, however long, is not replaced.
func TestHoldingRankIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := machine(t, recovery.NewBudget())
	for now := int64(0); now < 20*60*1000*ms; now += 500 * ms {
		for w := range 2 {
			m.Heard(plane.Beat{Worker: w, Incarnation: 1, Ranks: []plane.RankBeat{{Rank: w, Step: 4, Progress: 5, Holds: true}}}, now)
		}
		out := m.Tick(now)
		require.Empty(t, out.Mint)
		require.Nil(t, out.Verdict)
	}
}

// Three hangs at one place are poison; the place is certain since the rank stays there.
func TestHungRankIsPoison(t *testing.T) {
	t.Parallel()
	b := recovery.NewBudget()
	b.Backoff = []int64{0}
	m := machine(t, b)
	now := int64(0)
	beat := func(inc uint32, progress uint64) {
		m.Heard(plane.Beat{Worker: 0, Incarnation: 1, Ranks: []plane.RankBeat{{Rank: 0, Progress: 5, WaitsFor: []int{1}}}}, now)
		m.Heard(plane.Beat{Worker: 1, Incarnation: inc, Ranks: []plane.RankBeat{{Rank: 1, Step: 7, Progress: progress, Op: "mtp.1.forward"}}}, now)
	}
	for inc := uint32(1); ; inc++ {
		var out Out
		for out = m.Tick(now); out.Mint == nil && out.Verdict == nil; out = m.Tick(now) {
			now += 50 * ms
			beat(inc, 3)
		}
		if inc == 3 {
			require.Nil(t, out.Mint)
			require.Equal(t, 5, out.Verdict.Code)
			require.Contains(t, out.Verdict.Why, "rank 1 has died 3 times at step 7 mtp.1.forward: it would die there again")
			require.Equal(t, Out{}, m.Tick(now+1), "it says so once")
			return
		}
		r := out.Mint[0].Record
		require.Equal(t, plane.Hung, r.Cause)
		r.At = time.Unix(0, now)
		if inc == 1 {
			beat(1, 4)
			require.Len(t, m.Tick(now).Alarms, 1, "it has moved")
			require.Empty(t, m.Tick(now).Mint)
		}
		m.Saw(1, r, plane.Revision(10+inc), now)
	}
}

func TestFinalWordsEndTheRun(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	m.Exited(plane.Exit{Worker: 0, Incarnation: 1, Code: 1, Words: &plane.Words{Text: "two ranks disagree about step 3", Final: true}}, 5)
	out := m.Tick(6)
	require.Equal(t, &plane.Verdict{Code: 1, Why: "rank 0: two ranks disagree about step 3", By: "me"}, out.Verdict)

	m = machine(t, generous())
	for w := range 2 {
		require.False(t, m.Tick(6).Done)
		m.Exited(plane.Exit{Worker: w, Incarnation: 1}, 5)
	}
	require.True(t, m.Tick(6).Done)
	for now := 7 * ms; now < 10_000*ms; now += 50 * ms {
		require.Equal(t, Out{Done: true}, m.Tick(now), "who has ended is not silent")
	}
}

// A panic says where it was: three times there is poison, elsewhere it is not.
func TestPanicsAtOnePlace(t *testing.T) {
	t.Parallel()
	b := recovery.NewBudget()
	b.RankMax = 100
	m := machine(t, b)
	now := int64(0)
	for i, site := range []string{"step 3 a", "step 3 b", "step 3 a", "step 4 c", "step 3 a"} {
		now += 70_000 * ms
		m.Tick(now)
		inc := uint32(i + 1)
		m.Exited(plane.Exit{Worker: 0, Incarnation: inc, Code: 70, AtNs: now, Words: &plane.Words{Cause: plane.Panic, Site: site, Text: "boom"}}, now)
		m.Heard(plane.Beat{Worker: 1, Incarnation: 1}, now)
		out := m.Tick(now)
		if i == 4 {
			require.Equal(t, 5, out.Verdict.Code)
			require.Contains(t, out.Verdict.Why, "rank 0 has died 3 times at step 3 a")
			require.Contains(t, out.Verdict.Why, "the last: boom")
			return
		}
		require.Len(t, out.Mint, 1)
		r := out.Mint[0].Record
		require.Equal(t, plane.Panic, r.Cause)
		r.At = time.Unix(0, now)
		fresh, err := Options{Name: "fresh", Workers: m.workers, Budget: b}.complete() // each time another supervisor, which knows the records
		require.NoError(t, err)
		m = NewMachine(fresh)
		m.Lead(uint64(i), now, 1<<62)
		m.Saw(0, r, plane.Revision(10+i), now)
		m.Saw(1, plane.Record{Incarnation: 1, Host: "h"}, 2, now)
		m.Tick(now)
	}
}

// All workers of a host die at once: one cause, and the budget of the job counts one.
func TestDeathsOfAHostCountOnce(t *testing.T) {
	t.Parallel()
	b := recovery.NewBudget()
	b.JobMax = 1
	m := machine(t, b)
	for w := range 2 {
		m.Exited(plane.Exit{Worker: w, Incarnation: 1, Code: -1, Signal: "SIGKILL", AtNs: int64(1+100*w) * ms}, 200*ms)
	}
	require.Len(t, m.Tick(200*ms).Mint, 2)

	m = machine(t, b)
	for w := range 2 {
		m.Exited(plane.Exit{Worker: w, Incarnation: 1, Code: -1, Signal: "SIGKILL", AtNs: int64(1+1000*w) * ms}, 2000*ms)
	}
	require.Contains(t, m.Tick(2000*ms).Verdict.Why, "recovery.job_restarts allows 1")
}

// The servers have lost a record that they had acknowledged: it is written again, and its life goes on.
func TestLostRecordIsWrittenAgain(t *testing.T) {
	t.Parallel()
	m := machine(t, generous())
	six := plane.Record{Incarnation: 6, Host: "h", By: "another", At: time.Unix(0, 0)}
	m.Saw(1, six, 50, ms)
	require.Empty(t, m.Tick(ms).Mint)
	m.Saw(1, plane.Record{}, 0, 2*ms)
	require.Equal(t, []Wish{{1, six, 0}}, m.Tick(2*ms).Mint)
	m.Saw(1, plane.Record{Incarnation: 5}, 3, 3*ms)
	require.Equal(t, []Wish{{1, six, 3}}, m.Tick(3*ms).Mint)
	m.Exited(plane.Exit{Worker: 1, Incarnation: 6, Code: 3, AtNs: 4 * ms}, 4*ms)
	out := m.Tick(4 * ms).Mint
	require.Len(t, out, 1)
	require.EqualValues(t, 7, out[0].Record.Incarnation)
	require.EqualValues(t, 3, out[0].After)
	require.Equal(t, plane.Exited, out[0].Record.Cause)
}

// A process of several ranks dies once for all of them, and a sentence about it has one subject.
func TestVerdictOfSeveralRanks(t *testing.T) {
	t.Parallel()
	b := recovery.NewBudget()
	b.RankMax = 0
	m := NewMachine(Options{Name: "me", Workers: []Worker{{Ranks: []int{0, 1}, Host: "a"}}, Interval: 100 * time.Millisecond, Budget: b})
	m.Lead(1, 0, 1<<60)
	m.Saw(0, plane.Record{Incarnation: 1, Host: "a", At: time.Unix(0, 0)}, 1, 0)
	m.Exited(plane.Exit{Worker: 0, Incarnation: 1, Code: 3}, 5)
	require.Equal(t, "the process of ranks 0 1 has died once within recovery.restart_window_s, recovery.rank_restarts allows 0; the last: exit code 3", m.Tick(6).Verdict.Why)
}
