package actors

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/model"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/snapshot"
	"phalanx/transport"
)

// The tests in this file run the parts of a run beside each other, as processes do, over a network that loses messages.

// ether joins the parts. What is sent to a rank that is not there is lost, and every so many messages one more.
type ether struct {
	mu    sync.Mutex
	at    map[int]*etherLink
	loses func() bool
}

// part is the network of one process.
func (e *ether) part(incarnation uint32) *etherPart {
	return &etherPart{e: e, incarnation: incarnation}
}

type etherPart struct {
	e           *ether
	incarnation uint32
	links       []*etherLink
}

func (p *etherPart) Name() string        { return "ether" }
func (p *etherPart) GivesPayloads() bool { return true }

func (p *etherPart) Open(rank int, h transport.Handler) (transport.Link, error) {
	l := &etherLink{e: p.e, incarnation: p.incarnation, rank: rank, h: h, in: make(chan func(), 1<<14), done: make(chan struct{})}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	p.e.at[rank] = l
	p.links = append(p.links, l)
	go l.loop()
	return l, nil
}

func (p *etherPart) Close() error {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for _, l := range p.links {
		if p.e.at[l.rank] == l {
			delete(p.e.at, l.rank)
		}
		if !l.closed {
			l.closed = true
			close(l.done)
		}
	}
	return nil
}

// etherLink delivers in order, in its own goroutine.
type etherLink struct {
	e           *ether
	incarnation uint32
	rank        int
	h           transport.Handler
	in          chan func()
	done        chan struct{}
	closed      bool
}

func (l *etherLink) loop() {
	for {
		select {
		case f := <-l.in:
			f()
		case <-l.done:
			return
		}
	}
}

func (l *etherLink) to(dst int, f func(*etherLink)) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if t := l.e.at[dst]; t != nil && !l.closed && !l.e.loses() {
		select {
		case t.in <- func() { f(t) }:
		default: // lost
		}
	}
}

func (l *etherLink) Send(m transport.Message) error {
	m.Header.Src, m.Header.Incarnation = uint16(l.rank), l.incarnation
	m.Payload = slices.Clone(m.Payload)
	l.to(int(m.Header.Dst), func(t *etherLink) { t.h.Receive(m) })
	return nil
}

func (l *etherLink) Consumed(transport.Message) {}

func (l *etherLink) Control(dst int, body []byte) error {
	l.to(dst, func(t *etherLink) { t.h.Control(l.rank, body) })
	return nil
}

// disks are the snapshots of all ranks; they outlive everything.
type disks struct {
	mu   sync.Mutex
	rank map[int]disk
}

func (d *disks) open(rank int) (Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.rank[rank]; !ok {
		d.rank[rank] = disk{&snapshot.Memory{Rank: rank}}
	}
	return d.rank[rank], nil
}

// disk says some time later that a snapshot is durable.
type disk struct{ *snapshot.Memory }

func (d disk) Save(step uint32, sections [][]byte, done func(error)) (durable bool) {
	d.Memory.Save(step, sections, nil)
	go done(nil)
	return false
}

// spread is a run in parts.
type spread struct {
	s      *config.Scenario
	source model.Source
	net    *ether
	disks  *disks
	mu     sync.Mutex
	states map[int]string
	end    *endings                  // nil: nobody asks for an end
	told   func(messages.StepReport) // nil: nobody listens
}

// worker runs a process until it is killed or the run is over.
func (p *spread) worker(t *testing.T, ctx context.Context, ranks []int, incarnation uint32, gate Gate) {
	programs := func(rank int, l Life, emit func(messages.Event)) ([]func(nn.Comm), error) {
		return model.Programs(model.Env{Scenario: p.s, Rank: rank, Train: p.source, Emit: emit, Local: l.Local, Boundary: func(step int, local func() []byte) {
			if step == recoverSteps {
				p.mu.Lock()
				p.states[rank] = fmt.Sprintf("%x", sha256.Sum256(local()))
				p.mu.Unlock()
			}
			l.Boundary(step, local)
		}, Stop: l.Ends})
	}
	_, err := Run(ctx, Job{Name: "part", Sizes: p.s.Sizes(), Network: p.net.part(incarnation), Run: messages.RunHash(runID), Build: 9,
		Recovery: &Recovery{Every: 1, Budget: recovery.NewBudget(), Programs: programs},
		Part: &Part{Ranks: ranks, Incarnation: incarnation, Stores: p.disks.open, Status: &Status{}, Gate: gate,
			Die: func(err *RankError, site string) { panic(fmt.Sprintf("%v at %s", err, site)) }}})
	var e *InterruptedError
	if !errors.As(err, &e) {
		t.Errorf("the process of ranks %v ended by itself: %v", ranks, err)
	}
}

// train runs all parts; kills is how many processes are killed on the way.
func (p *spread) train(t *testing.T, procs, kills int, seed uint64) (reports []messages.StepReport, result *Result) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	world := p.s.Sizes().World()
	rng := rand.New(rand.NewPCG(seed, 1))
	var wg sync.WaitGroup
	type process struct {
		ranks  []int
		inc    uint32
		cancel func()
	}
	all := make([]*process, procs)
	start := func(i int) {
		q := all[i]
		q.inc++
		own, stop := context.WithCancel(ctx)
		q.cancel = stop
		wg.Add(1)
		inc, gate := q.inc, p.end.of(q.ranks) // now: lives may begin in another order
		go func() { defer wg.Done(); p.worker(t, own, q.ranks, inc, gate) }()
	}
	for i := range all {
		all[i] = &process{}
		for r := i * world / procs; r < (i+1)*world/procs; r++ {
			all[i].ranks = append(all[i].ranks, r)
		}
		start(i)
	}
	var mu sync.Mutex
	over := make(chan struct{})
	go func() {
		defer close(over)
		var err error
		result, err = Run(ctx, Job{Name: "collector", Sizes: p.s.Sizes(), Network: p.net.part(1), Run: messages.RunHash(runID), Build: 9,
			Recovery: &Recovery{Every: 1}, Part: &Part{}, Listen: func(e messages.Event) {
				if e, ok := e.(messages.StepReport); ok {
					mu.Lock()
					reports = append(reports, e)
					mu.Unlock()
					if p.told != nil {
						p.told(e)
					}
				}
			}})
		if err != nil {
			t.Errorf("collector: %v", err)
		}
	}()
	for range kills {
		select {
		case <-over:
		case <-time.After(time.Duration(rng.IntN(60)) * time.Millisecond):
			i := rng.IntN(procs)
			all[i].cancel()
			start(i)
		}
	}
	<-over
	cancel()
	wg.Wait()
	return reports, result
}

func newSpread(l trial.Layout, ep int, loses func() bool) *spread {
	s, source := trial.Toy(l, ep, recoverSteps)
	return &spread{s: s, source: source, net: &ether{at: map[int]*etherLink{}, loses: loses}, disks: &disks{rank: map[int]disk{}}, states: map[int]string{}}
}

// A run in parts has the bits of a run in one, whatever is lost and whichever parts are killed.
func TestPartsHaveTheBitsOfOneProcess(t *testing.T) {
	for _, c := range recoverLayouts {
		t.Run(c.name, func(t *testing.T) {
			s, source := trial.Toy(c.l, c.ep, recoverSteps)
			quiet := trainWith(t, s, source, newNetwork(t, "direct", 0), 1, nil)
			require.NoError(t, quiet.err)
			for seed, kills := range []int{0, 0, 3, 6} {
				rng := rand.New(rand.NewPCG(uint64(seed), 2))
				rate := map[int]float64{1: 0.02, 3: 0.02}[seed]
				p := newSpread(c.l, c.ep, func() bool { return rng.Float64() < rate }) // under the ether's lock
				reports, result := p.train(t, s.Sizes().World(), kills, uint64(seed))
				require.Equal(t, quiet.reports, reports)
				for rank, state := range quiet.states {
					require.Equal(t, state, p.states[rank], "rank %d, seed %d", rank, seed)
				}
				require.Equal(t, counted(quiet.result.Ops), counted(result.Ops))
			}
		})
	}
}

func counted(ops []collective.OpCount) map[string]bool {
	m := map[string]bool{}
	for _, o := range ops {
		m[o.String()] = true
	}
	return m
}
