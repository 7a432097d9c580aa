package actors

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/recovery"
)

// endings are the gates of the processes of a run, and the one who decides, who hear each other now and then.
type endings struct {
	mu     sync.Mutex
	ending *recovery.Ending
	rng    *rand.Rand
	gates  map[int]*testGate // by first rank of a process
	rounds uint32
}

// testGate is the gate of one process.
type testGate struct {
	mu      sync.Mutex
	gate    *recovery.Gate
	answers map[int]func(bool)
}

func (g *testGate) At(rank int, step uint32, answer func(bool)) recovery.Pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[rank] = answer
	return g.gate.At(rank, step)
}

func (g *testGate) Reported(rank int, step uint32, ahead bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gate.Reported(rank, step, ahead)
}

// of is the gate of a process that begins.
func (e *endings) of(ranks []int) Gate {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &testGate{gate: recovery.NewGate(ranks, e.ending.End()), answers: map[int]func(bool){}}
	e.gates[ranks[0]] = g
	return g
}

// talk lets processes and the one who decides hear each other, until the run is over.
func (e *endings) talk(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
		e.mu.Lock()
		for first, g := range e.gates {
			if e.rng.IntN(3) == 0 {
				continue // it hears nothing
			}
			g.mu.Lock()
			for _, f := range g.gate.Heard(e.ending.End()) {
				g.answers[f.Rank](f.Ends)
			}
			e.ending.Claimed(first, g.gate.Claim())
			g.mu.Unlock()
		}
		e.rounds = e.ending.End().Round
		e.mu.Unlock()
	}
}

// Parts that are asked to stop end after one step of all, with the reports of a run in one process up to there, while parts are killed
// and messages are lost.
func TestPartsStopTogether(t *testing.T) {
	c := recoverLayouts[0]
	s, source := trial.Toy(c.l, c.ep, recoverSteps)
	quiet := trainWith(t, s, source, newNetwork(t, "direct", 0), 1, nil)
	require.NoError(t, quiet.err)
	world := s.Sizes().World()
	ended, most := map[int]int{}, uint32(0)
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := newSpread(c.l, c.ep, func() bool { return rng.Float64() < 0.01 }) // under the ether's lock
		p.end = &endings{ending: recovery.NewEnding(world, recoverSteps), rng: rand.New(rand.NewPCG(seed, 5)), gates: map[int]*testGate{}}
		over := make(chan struct{})
		p.told = func(e messages.StepReport) {
			if e.Step == int(seed)%(recoverSteps-1) {
				p.end.mu.Lock()
				defer p.end.mu.Unlock()
				p.end.ending.Ask(uint32(e.Step) + uint32(seed)%2)
			}
		}
		var talking sync.WaitGroup
		talking.Go(func() { p.end.talk(over) })
		reports, _ := p.train(t, world, int(seed)%4, seed)
		close(over)
		talking.Wait()
		require.Equal(t, quiet.reports[:len(reports)], reports, "seed %d", seed)
		if end := p.end.ending.End(); len(reports) < recoverSteps {
			require.True(t, end.Decided, fmt.Sprint(end))
			require.EqualValues(t, end.Steps, len(reports))
		}
		ended[len(reports)]++
		most = max(most, p.end.rounds)
	}
	require.Greater(t, len(ended), 1, "they have ended after different steps: %v", ended)
	t.Logf("runs by steps done: %v, at most %d rounds", ended, most)
}
