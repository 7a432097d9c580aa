package plane

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"phalanx/recovery"
	"phalanx/transport/natslink"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for text, o := range map[string]Options{
		`found run id "a.b"`:   {Run: "a.b", URL: "nats://127.0.0.1:1"},
		"found no URL":         {Run: "a"},
		"found 2 replicas":     {Run: "a", URL: "nats://127.0.0.1:1", Replicas: 2},
		"found a lease of 1ms": {Run: "a", URL: "nats://127.0.0.1:1", LeaseTTL: time.Millisecond},
		"has no usable seed":   {Run: "a", URL: "nats://127.0.0.1:1", Login: natslink.Login{NKey: os.Args[0] + ".none"}},
	} {
		_, err := Open(t.Context(), o)
		require.ErrorContains(t, err, text)
	}
}

// Eight supervisors want to write the next incarnation. One does, each time.
func TestOneWriterWins(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	var rev Revision
	for inc := uint32(1); inc <= 10; inc++ {
		var won atomic.Int32
		var next atomic.Uint64
		var wait sync.WaitGroup
		for i := range 8 {
			wait.Go(func() {
				r, err := p.Mint(ctx, 3, Record{Incarnation: inc, By: string(rune('a' + i))}, rev)
				if err == nil {
					won.Add(1)
					next.Store(uint64(r))
				} else if !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		require.EqualValues(t, 1, won.Load())
		rev = Revision(next.Load())
		r, at, err := p.Record(ctx, 3)
		require.NoError(t, err)
		require.Equal(t, rev, at)
		require.Equal(t, inc, r.Incarnation)
		require.False(t, r.At.IsZero())
	}
	_, _, err := p.Record(ctx, 4)
	require.ErrorIs(t, err, ErrMissing)
}

// A writer whose answer was lost writes again and learns that it was the one. Another's bytes are a conflict.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	mine := Record{Incarnation: 1, By: "me"}
	first, err := p.Mint(ctx, 0, mine, 0)
	require.NoError(t, err)
	again, err := p.Mint(ctx, 0, mine, 0)
	require.NoError(t, err)
	require.Equal(t, first, again)
	_, err = p.Mint(ctx, 0, Record{Incarnation: 1, By: "you"}, 0)
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, "found revision")

	second, err := p.Mint(ctx, 0, Record{Incarnation: 2, By: "you"}, first)
	require.NoError(t, err)
	_, err = p.Mint(ctx, 0, mine, 0)
	require.ErrorIs(t, err, ErrConflict, "what was written once and replaced since is not there")
	require.Greater(t, second, first)
}

// A watcher is told what is there and what comes, over a restart of the server.
func TestWatchOverRestart(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	seen := make(chan Record, 10)
	watching, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.WatchRecord(watching, 1, func(r Record, _ Revision) { seen <- r }) }()
	require.Zero(t, soon(t, seen), "there is none")
	rev, err := p.Mint(ctx, 1, Record{Incarnation: 1}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, soon(t, seen).Incarnation)

	n.stop()
	require.Eventually(t, func() bool { return !p.Connected() }, patience, time.Millisecond)
	written := make(chan error, 1)
	go func() { // waits for the server
		_, err := p.Mint(ctx, 1, Record{Incarnation: 2}, rev)
		written <- err
	}()
	n.start(t)
	require.NoError(t, soon(t, written))
	require.EqualValues(t, 2, soon(t, seen).Incarnation)
	cancel()
	require.ErrorIs(t, soon(t, done), context.Canceled)
}

// A single server comes back without its files: buckets are made again, and revisions begin anew.
func TestServerLosesItsFiles(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	_, err := p.Mint(ctx, 1, Record{Incarnation: 5}, 0)
	require.NoError(t, err)
	n.stop()
	n.o.StoreDir = t.TempDir()
	n.start(t)
	_, _, err = p.Record(ctx, 1)
	require.ErrorIs(t, err, ErrMissing)
	_, err = p.Mint(ctx, 1, Record{Incarnation: 6}, 0)
	require.NoError(t, err)
	require.NoError(t, p.Note(ctx, Restart{Worker: 1, Record: Record{Incarnation: 6}}))
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	verdicts := make(chan Verdict, 1)
	done := make(chan error, 1)
	go func() { done <- p.WatchVerdict(ctx, func(v Verdict) { verdicts <- v }) }()
	first, err := p.Judge(ctx, Verdict{Code: 5, Why: "poison", By: "a"})
	require.NoError(t, err)
	second, err := p.Judge(ctx, Verdict{Code: 4, Why: "used up", By: "b"})
	require.NoError(t, err)
	require.Equal(t, first, second, "the first stays")
	require.Equal(t, 5, soon(t, verdicts).Code)
	require.NoError(t, soon(t, done))
}

func TestRestartsAreKeptOnce(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	at := time.Unix(100, 5)
	for _, inc := range []uint32{2, 3, 2, 3} {
		require.NoError(t, p.Note(ctx, Restart{Worker: 1, Record: Record{Incarnation: inc, Cause: Killed, At: at}}))
	}
	for range 2 {
		require.NoError(t, p.FalseAlarm(ctx, 1, 2))
	}
	alarms, err := p.FalseAlarms(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, alarms)
	list, err := p.Restarts(ctx)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.EqualValues(t, 2, list[0].Record.Incarnation)
	require.Equal(t, Killed, list[1].Record.Cause)
	require.True(t, at.Equal(list[1].Record.At))
	require.NoError(t, p.Erase(ctx))
	require.NoError(t, p.Erase(ctx))
}

// The parts of a restart's time add up, and what one part is to blame for is not told as another's.
func TestSplit(t *testing.T) {
	t.Parallel()
	ms := int64(time.Millisecond)
	r := Record{SignNs: 1000 * ms, LedNs: 10 * ms, DecidedNs: 1600 * ms, WaitNs: 50 * ms, At: time.Unix(0, 1700*ms)}
	require.Equal(t, Split{Detection: 600 * time.Millisecond, Backoff: 50 * time.Millisecond, Broker: 50 * time.Millisecond}, r.Split())
	require.Equal(t, 700*time.Millisecond, r.Split().Total())
	r.LedNs = 1500 * ms // the leader died too
	require.Equal(t, 500*time.Millisecond, r.Split().Leaderless)
	require.Equal(t, 100*time.Millisecond, r.Split().Detection)
	require.Equal(t, 700*time.Millisecond, r.Split().Total())
	r.LedNs = 1620 * ms // a follower had decided, and could not act
	require.Equal(t, Split{Leaderless: 620 * time.Millisecond, Backoff: 50 * time.Millisecond, Broker: 30 * time.Millisecond}, r.Split())
	require.Zero(t, Record{Cause: Begun, At: time.Unix(3, 0)}.Split())
}

func TestLease(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url(), LeaseTTL: time.Second}), within(t)
	a, err := p.Acquire(ctx, "a")
	require.NoError(t, err)
	_, err = p.Acquire(ctx, "b")
	require.ErrorIs(t, err, ErrConflict)
	_, err = p.Acquire(ctx, "a")
	require.ErrorIs(t, err, ErrConflict, "its own old lease is another one")
	a2, err := p.Renew(ctx, a)
	require.NoError(t, err)
	require.Equal(t, a.Term, a2.Term)
	_, err = p.Renew(ctx, a)
	require.ErrorIs(t, err, ErrConflict, "renewed since")
	who, err := p.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "a", who)

	var b Lease
	require.Eventually(t, func() bool { b, err = p.Acquire(ctx, "b"); return err == nil }, patience, 50*time.Millisecond)
	require.Greater(t, b.Term, a.Term)
	_, err = p.Renew(ctx, a2)
	require.ErrorIs(t, err, ErrConflict, "it is another's now")
	require.NoError(t, p.Release(ctx, b))
	_, err = p.Leader(ctx)
	require.ErrorIs(t, err, ErrMissing)
}

func TestMessages(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, q := open(t, Options{URL: n.url()}), open(t, Options{URL: n.url()})
	beats, exits, stops, ends := make(chan Beat, 9), make(chan Exit, 9), make(chan Stop, 9), make(chan recovery.End, 9)
	for _, sub := range []func() (func(), error){
		func() (func(), error) { return p.Beats(func(b Beat) { beats <- b }) },
		func() (func(), error) { return p.Exits(func(e Exit) { exits <- e }) },
		func() (func(), error) { return p.Stops(func(s Stop) { stops <- s }) },
		func() (func(), error) { return p.Ends(func(e recovery.End) { ends <- e }) },
	} {
		stop, err := sub()
		require.NoError(t, err)
		defer stop()
	}
	require.NoError(t, p.conn.Flush())
	beat := Beat{Worker: 2, Incarnation: 3, PID: 4, RSSBytes: 5, Claim: recovery.Claim{Round: 2, Reach: 8, Holds: true}, Ranks: []RankBeat{
		{Rank: 4, Step: 7, Progress: 9, WaitsFor: []int{1, 2}, Op: "tp all-reduce", WaitedNs: 5, ComputeNs: 8},
		{Rank: 6, Holds: true},
		{Rank: 5, Done: true, Recovered: &Recovered{Cause: Hung, At: "step 3", Replayed: 118, Dropped: 7, RestartNs: 1, ReplayNs: 2}}}}
	require.NoError(t, q.conn.Publish(q.subject("hb.2"), []byte("junk")))
	require.NoError(t, q.conn.Publish(q.subject("hb.2"), encode(map[int]int{1: 2, 77: 3})))
	q.Beat(beat)
	exit := Exit{Worker: 1, Incarnation: 2, Code: 70, Words: &Words{Cause: Panic, Site: "step 3 tp", Text: "boom"}}
	q.Exit(exit)
	q.Stop("over")
	end := recovery.End{Round: 3, Steps: 14, Decided: true}
	q.End(end)
	require.Equal(t, beat, soon(t, beats), "what cannot be read is passed over")
	require.Equal(t, exit, soon(t, exits))
	require.Equal(t, Stop{"over"}, soon(t, stops))
	require.Equal(t, end, soon(t, ends))
	require.Equal(t, "exit worker=1 incarnation=2 pid=0 code 70", exit.String())
}

func TestWorkerIsFenced(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	beats := make(chan Beat, 1000)
	stop, err := p.Beats(func(b Beat) { beats <- b })
	require.NoError(t, err)
	defer stop()
	fenced := make(chan error, 9)
	made := make(chan *Worker, 1)
	go func() { // before its record exists
		w, err := p.Work(ctx, WorkerOptions{Worker: 1, Incarnation: 1, Every: time.Millisecond, Fenced: func(err error) { fenced <- err },
			Report: func() ([]RankBeat, uint64) { return []RankBeat{{Rank: 3, Progress: 8}}, 77 }})
		if err != nil {
			t.Error(err)
		}
		made <- w
	}()
	rev, err := p.Mint(ctx, 1, Record{Incarnation: 1, Cause: Begun}, 0)
	require.NoError(t, err)
	w := soon(t, made)
	defer w.Close()
	require.Equal(t, Begun, w.Record().Cause)
	b := soon(t, beats)
	require.Equal(t, Beat{Worker: 1, Incarnation: 1, PID: os.Getpid(), RSSBytes: 77, Ranks: []RankBeat{{Rank: 3, Progress: 8}}}, b)
	require.NoError(t, w.Check(ctx))

	_, err = p.Mint(ctx, 1, Record{Incarnation: 2}, rev)
	require.NoError(t, err)
	require.ErrorIs(t, w.Check(ctx), ErrFenced)
	require.ErrorIs(t, soon(t, fenced), ErrFenced)
	_, err = p.Work(ctx, WorkerOptions{Worker: 1, Incarnation: 1})
	require.ErrorIs(t, err, ErrFenced)
	w.Close()
	require.Empty(t, fenced, "once")
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	n := single(t)
	p, ctx := open(t, Options{URL: n.url()}), within(t)
	_, err := p.Mint(ctx, 0, Record{Incarnation: 1}, 0)
	require.NoError(t, err)
	fenced := make(chan error, 1)
	w, err := p.Work(ctx, WorkerOptions{Worker: 0, Incarnation: 1, Host: "h", Every: time.Millisecond, OrphanAfter: 50 * time.Millisecond,
		Report: func() ([]RankBeat, uint64) { return nil, 0 }, Fenced: func(err error) { fenced <- err }})
	require.NoError(t, err)
	defer w.Close()
	require.ErrorIs(t, soon(t, fenced), ErrOrphaned)
}

func TestServerWithoutJetStreamIsNamed(t *testing.T) {
	t.Parallel()
	n := &node{o: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}}
	n.start(t)
	t.Cleanup(n.stop)
	_, err := Open(within(t), Options{Run: "a", URL: n.url(), patience: time.Millisecond})
	require.ErrorContains(t, err, "it needs JetStream (nats-server -js)")

	n = single(t)
	_, err = Open(within(t), Options{Run: "a", URL: n.url(), Replicas: 3, patience: time.Millisecond})
	require.ErrorContains(t, err, "3 replica(s)")
}

// Nobody is there: the context ends the wait, and the error says for what it was. Close ends it too.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Options{Run: "a", URL: "nats://127.0.0.1:1"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "the control plane's buckets")

	n := single(t)
	p := open(t, Options{URL: n.url()})
	n.stop()
	done := make(chan error, 1)
	go func() { _, _, err := p.Record(within(t), 0); done <- err }()
	time.Sleep(10 * time.Millisecond)
	p.Close()
	require.ErrorIs(t, soon(t, done), ErrClosed)
}

// Three servers, each stopped and started again in turn, while two writers count one record up. Nothing that was
// acknowledged is lost, and no number is given twice.
func TestClusterLosesServers(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	ctx := within(t)
	var planes []*Plane
	for range 2 {
		planes = append(planes, open(t, Options{URL: urls(nodes), Replicas: 3}))
	}
	stop := make(chan struct{})
	given := make([][]uint32, len(planes))
	var wait sync.WaitGroup
	for i, p := range planes {
		wait.Go(func() { given[i] = count(ctx, t, p, "abc"[i:i+1], stop) })
	}
	for _, n := range nodes {
		n.stop()
		n.start(t)
		before, _, err := planes[0].Record(ctx, 0)
		if !errors.Is(err, ErrMissing) {
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			r, _, err := planes[1].Record(ctx, 0)
			return err == nil && r.Incarnation > before.Incarnation
		}, patience, 10*time.Millisecond)
	}
	close(stop)
	wait.Wait()
	all, newest := map[uint32]bool{}, uint32(0)
	for _, list := range given {
		for _, inc := range list {
			require.False(t, all[inc], "incarnation %d was given twice: what was acknowledged is lost", inc)
			all[inc] = true
			newest = max(newest, inc)
		}
	}
	last, _, err := planes[0].Record(ctx, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, last.Incarnation, newest, "nothing that was acknowledged is lost")
	// A write whose answer was lost, and over which the other has written since, looks refused: once for each server and writer.
	require.LessOrEqual(t, int(last.Incarnation)-len(all), len(nodes)*len(planes))
}

// count mints incarnations of worker 0 until stop, and returns those that it won.
func count(ctx context.Context, t *testing.T, p *Plane, by string, stop <-chan struct{}) (won []uint32) {
	for {
		select {
		case <-stop:
			return won
		default:
		}
		r, rev, err := p.Record(ctx, 0)
		if err != nil && !errors.Is(err, ErrMissing) {
			t.Error(err)
			return won
		}
		switch _, err = p.Mint(ctx, 0, Record{Incarnation: r.Incarnation + 1, By: by}, rev); {
		case err == nil:
			won = append(won, r.Incarnation+1)
		case !errors.Is(err, ErrConflict):
			t.Error(err)
			return won
		}
		time.Sleep(time.Millisecond)
	}
}
