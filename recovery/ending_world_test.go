package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/messages"
)

// A world of toy ranks in processes that die, whose run is asked to stop at any time: machines, gates and the one who decides are
// the real ones; the network loses, repeats and reorders what they say. A rank sends its state to every other in each step,
// takes theirs, and reports to the collector.

const (
	stopLast   = 9 // steps of the whole run
	stopEvery  = 2 // steps between snapshots
	reportChan = 7
)

// stopBug is what a world does wrong on purpose.
type stopBug int

const (
	noBug     stopBug = iota
	deafBirth         // a process is not told at its start what was proposed before
	unasked           // a rank that waits does not ask what the collector has of it
	noFence           // the collector takes messages of lives that are over
	strays            // the collector keeps what earlier lives have sent out of order
	hastyEnd          // it is decided when all but one process hold
)

type stopWorld struct {
	rng       *rand.Rand
	bug       stopBug
	n, procs  int
	processes []*stopProcess // nil: dead
	inc       []uint32       // by process
	disks     []map[uint32]snapshot
	gens      []uint32
	net       []stopFlight
	drop, dup int
	late      int // how often something overtakes all that is under way
	crashes   int
	now       int64
	err       error

	collector *Rank
	lives     []uint32 // by rank, of its process: what the collector has heard of
	begun     []uint32
	reports   [][]string
	ending    *Ending
	askAt     int64 // < 0: nobody asks
}

type stopProcess struct {
	inc   uint32
	gate  *Gate
	ranks []*stopRank
}

// stopRank is one life of a rank.
type stopRank struct {
	w                   *stopWorld
	rank, proc          int
	life                uint32
	m                   *Rank
	state               uint64
	step                uint32
	at                  int
	started, sent, came bool // came: by the boundary before the step
	waits, held, done   bool
	inbox               []Message
}

// stopFlight is under way: one of data, control, claim and end.
type stopFlight struct {
	to, from int // ranks, the collector being the last; of claims and ends processes
	inc      uint32
	data     *Message
	control  *Control
	claim    *Claim
	end      *End
}

func newStopWorld(seed uint64, bug stopBug) *stopWorld {
	w := &stopWorld{rng: rand.New(rand.NewPCG(seed, 3)), bug: bug, n: 4}
	w.procs = []int{2, 4}[w.rng.IntN(2)]
	w.processes, w.inc = make([]*stopProcess, w.procs), make([]uint32, w.procs)
	w.gens, w.lives, w.begun, w.reports = make([]uint32, w.n), make([]uint32, w.n), make([]uint32, w.n), make([][]string, w.n)
	w.drop, w.dup, w.crashes, w.askAt = w.rng.IntN(150), w.rng.IntN(150), w.rng.IntN(8), int64(w.rng.IntN(2000))
	w.late = w.rng.IntN(950)
	if w.rng.IntN(10) == 0 {
		w.askAt = -1
	}
	w.ending = NewEnding(w.procs, stopLast)
	w.collector = New(Options{Rank: w.n, World: w.n + 1, Incarnation: 1, Collector: w.n, Patience: 20, PatienceMax: 100}, State{}, 0, []uint32{0})
	w.collect(w.collector.Start(), nil)
	for r := range w.n {
		w.disks = append(w.disks, map[uint32]snapshot{0: {state: mix(uint64(r))}})
	}
	for p := range w.procs {
		w.birth(p)
	}
	return w
}

func (w *stopWorld) chance(thousandths int) bool { return w.rng.IntN(1000) < thousandths }

func (w *stopWorld) fail(err error) {
	if w.err == nil && err != nil {
		w.err = err
	}
}

// birth starts a process. The one before is gone.
func (w *stopWorld) birth(p int) {
	w.inc[p]++
	var ranks []int
	for r := range w.n {
		if r*w.procs/w.n == p {
			ranks = append(ranks, r)
		}
	}
	heard := w.ending.End()
	if w.bug == deafBirth {
		heard = End{}
	}
	w.processes[p] = &stopProcess{inc: w.inc[p], gate: NewGate(ranks, heard)}
	for _, r := range ranks {
		w.processes[p].ranks = append(w.processes[p].ranks, w.live(p, r, w.inc[p]<<10+1))
	}
}

// live is a life of a rank, from the snapshot of the generation that it knows.
func (w *stopWorld) live(p, r int, life uint32) *stopRank {
	s, ok := w.disks[r][w.gens[r]]
	if !ok {
		w.fail(fmt.Errorf("rank %d has no snapshot of %d", r, w.gens[r]))
	}
	var durable []uint32
	for step := range w.disks[r] {
		durable = append(durable, step)
	}
	return &stopRank{w: w, rank: r, proc: p, life: life, state: s.state, step: w.gens[r],
		m: New(Options{Rank: r, World: w.n + 1, Incarnation: life, Collector: w.n, Window: 4, Patience: 20, PatienceMax: 100}, s.at, w.gens[r], durable)}
}

func (w *stopWorld) send(f stopFlight) {
	if w.chance(w.drop) {
		return
	}
	w.net = append(w.net, f)
	if w.chance(w.dup) {
		w.net = append(w.net, f)
	}
}

// here says whether this is the life that counts.
func (t *stopRank) here() bool {
	p := t.w.processes[t.proc]
	return p != nil && slices.Contains(p.ranks, t)
}

func (t *stopRank) do(fx Effects) {
	w := t.w
	t.inbox = append(t.inbox, fx.Deliver...)
	for _, m := range fx.Publish {
		w.send(stopFlight{to: int(m.Header.Dst), from: t.rank, inc: w.inc[t.proc], data: &m})
	}
	for _, c := range fx.Control {
		w.send(stopFlight{to: c.Dst, from: t.rank, inc: w.inc[t.proc], control: &c})
	}
	if fx.Committed {
		w.gens[t.rank] = t.m.Generation()
		for step := range w.disks[t.rank] {
			if step < t.m.Generation() {
				delete(w.disks[t.rank], step)
			}
		}
	}
	if fx.Jump && t.here() {
		w.gens[t.rank] = max(w.gens[t.rank], fx.JumpTo)
		p := w.processes[t.proc]
		p.ranks[slices.Index(p.ranks, t)] = w.live(t.proc, t.rank, t.life+1)
	}
}

// report is a numbered message to the collector.
func (t *stopRank) report(step uint32, text string) {
	t.do(t.m.Send(Message{Header: messages.Header{Src: uint16(t.rank), Dst: uint16(t.w.n), Chan: reportChan, Step: step}, Payload: []byte(text)}))
}

// turn goes one stretch ahead; false: the rank waits for somebody.
func (t *stopRank) turn() bool {
	switch {
	case t.done || !t.started || t.waits:
		return false
	case !t.came:
		t.boundary()
	case !t.sent:
		t.sent = true
		for p := range t.w.n {
			if p != t.rank {
				b := binary.LittleEndian.AppendUint64(nil, mix(t.state, uint64(t.step), uint64(p)))
				t.do(t.m.Send(Message{Header: messages.Header{Src: uint16(t.rank), Dst: uint16(p), Step: t.step}, Payload: b}))
			}
		}
	case t.at == t.w.n-1:
		t.report(t.step, fmt.Sprintf("step %d is %x", t.step, t.state))
		t.step++
		t.at, t.sent, t.came = 0, false, false
	default:
		return t.take()
	}
	return true
}

// take takes the message of the next peer, ascending.
func (t *stopRank) take() bool {
	p := t.at
	if p >= t.rank {
		p++
	}
	i := slices.IndexFunc(t.inbox, func(m Message) bool { return int(m.Header.Src) == p })
	if i < 0 {
		return false
	}
	m := t.inbox[i]
	if m.Header.Step != t.step {
		t.w.fail(fmt.Errorf("rank %d in step %d took a message of step %d", t.rank, t.step, m.Header.Step))
	}
	t.inbox = slices.Delete(t.inbox, i, i+1)
	t.state = mix(t.state, binary.LittleEndian.Uint64(m.Payload))
	t.at++
	t.do(t.m.Read(Edge{uint16(p), 0}))
	return true
}

// boundary reports that a step begins, keeps it, and asks the gate.
func (t *stopRank) boundary() {
	t.came = true
	t.report(t.step, fmt.Sprintf("begun %d", t.step))
	if t.step > t.w.gens[t.rank] && t.step%stopEvery == 0 && !t.w.chance(100) {
		t.w.disks[t.rank][t.step] = snapshot{t.state, t.m.Boundary(t.step)}
		t.do(t.m.Saved(t.step))
	}
	if !t.here() {
		return
	}
	if t.step == stopLast {
		t.end()
		return
	}
	switch t.w.processes[t.proc].gate.At(t.rank, t.step) {
	case Waits:
		t.waits, t.held = true, true
	case Ends:
		t.end()
	}
}

func (t *stopRank) end() {
	t.report(t.step, fmt.Sprintf("saved %d", t.step))
	t.report(1<<31, "done")
	t.done = true
	t.do(t.m.Finish())
}

// look is what a keeper does now and then: it tells the gate what the collector has, and asks for what has not come.
func (t *stopRank) look() {
	if t.held {
		ahead, known := t.m.Reported()
		if t.w.bug == unasked {
			ahead, known = false, true
		}
		if known {
			t.w.processes[t.proc].gate.Reported(t.rank, t.step, ahead)
			t.held = false
		} else if t.w.chance(200) {
			t.do(t.m.Greet())
		}
	}
	var missing []Edge
	if t.started && t.sent && !t.done {
		p := t.at
		if p >= t.rank {
			p++
		}
		if p < t.w.n {
			missing = []Edge{{uint16(p), 0}}
		}
	}
	t.do(t.m.Tick(t.w.now, missing))
}

// collect carries out what the collector's machine wants.
func (w *stopWorld) collect(fx Effects, err error) {
	w.fail(err)
	for _, m := range fx.Deliver {
		r, text := int(m.Header.Src), string(m.Payload)
		w.reports[r] = append(w.reports[r], text)
		var s uint32
		if _, err := fmt.Sscanf(text, "begun %d", &s); err == nil {
			before := slices.Min(w.begun)
			w.begun[r] = s
			for g := before + 1; g <= slices.Min(w.begun); g++ {
				w.collect(w.collector.Saved(g), nil)
			}
		}
	}
	for _, m := range fx.Deliver {
		w.collect(w.collector.Read(Edge{m.Header.Src, m.Header.Chan}), nil)
	}
	for _, c := range fx.Control {
		w.send(stopFlight{to: c.Dst, from: w.n, inc: 1, control: &c})
	}
}

func (w *stopWorld) arrive() {
	i := w.rng.IntN(min(len(w.net), 1+w.rng.IntN(30)))
	if w.chance(w.late) {
		i = len(w.net) - 1
	}
	f := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	switch {
	case f.claim != nil:
		w.ending.Claimed(f.from, *f.claim)
		if w.bug == hastyEnd && w.ending.holding() >= w.procs-1 {
			w.ending.end.Decided = true
		}
	case f.end != nil:
		w.hear(f)
	case f.to == w.n && f.data != nil:
		if f.inc >= w.lives[f.from] || w.bug == noFence {
			fx, err := w.collector.Receive(*f.data)
			w.collect(fx, err)
		}
	case f.to == w.n:
		w.lives[f.from] = max(w.lives[f.from], f.inc)
		var kept map[uint64]held
		if in := w.collector.in[Edge{uint16(f.from), reportChan}]; in != nil && w.bug == strays {
			kept = maps.Clone(in.kept)
		}
		fx, err := w.collector.Control(*f.control)
		for n, m := range kept {
			w.collector.in[Edge{uint16(f.from), reportChan}].kept[n] = m
		}
		w.collect(fx, err)
	default:
		w.deliver(f)
	}
}

func (e *Ending) holding() (n int) {
	for _, h := range e.holds {
		if h {
			n++
		}
	}
	return n
}

// hear lets a process hear of an end.
func (w *stopWorld) hear(f stopFlight) {
	p := w.processes[f.to]
	if p == nil {
		return
	}
	for _, free := range p.gate.Heard(*f.end) {
		for _, t := range p.ranks {
			if t.rank == free.Rank && t.waits {
				t.waits, t.held = false, false
				if free.Ends {
					t.end()
				}
			}
		}
	}
}

func (w *stopWorld) deliver(f stopFlight) {
	p := w.processes[f.to*w.procs/w.n]
	if p == nil {
		return
	}
	for _, t := range p.ranks {
		if t.rank != f.to {
			continue
		}
		var fx Effects
		var err error
		if f.data != nil {
			fx, err = t.m.Receive(*f.data)
		} else {
			fx, err = t.m.Control(*f.control)
		}
		w.fail(err)
		t.do(fx)
		return
	}
}

// step is one thing that happens.
func (w *stopWorld) step() {
	w.now++
	if w.now == w.askAt {
		w.ending.Ask(uint32(w.rng.IntN(int(slices.Max(w.begun)) + 2)))
	}
	p := w.rng.IntN(w.procs)
	process := w.processes[p]
	switch {
	case process == nil:
		if w.chance(100) {
			w.birth(p)
		}
		return
	case w.crashes > 0 && w.chance(4):
		w.crashes--
		w.processes[p] = nil
		if w.chance(300) { // the whole host has gone
			clear(w.processes)
		}
		return
	case w.chance(50):
		c := process.gate.Claim()
		w.send(stopFlight{from: p, claim: &c})
		return
	case w.chance(50) && w.ending.End().Round > 0:
		e := w.ending.End()
		w.send(stopFlight{to: p, end: &e})
		return
	case len(w.net) > 0 && w.chance(600):
		w.arrive()
		return
	case w.chance(50):
		var edges []Edge
		for r := range w.n {
			edges = append(edges, Edge{uint16(r), reportChan})
		}
		w.collect(w.collector.Tick(w.now, edges), nil)
		return
	}
	t := process.ranks[w.rng.IntN(len(process.ranks))]
	switch {
	case !t.started:
		t.started = true
		t.do(t.m.Start())
	case !t.turn() && t.here():
		t.look()
	}
}

// run ends when the collector has the last report of every rank; the steps that were done.
func (w *stopWorld) run() (steps uint32, err error) {
	for range 200_000 {
		if w.err != nil {
			return 0, w.err
		}
		if !slices.ContainsFunc(w.reports, func(r []string) bool { return len(r) == 0 || r[len(r)-1] != "done" }) {
			return w.check()
		}
		w.step()
	}
	return 0, errors.New("there is no end")
}

// check compares what was reported with a run of so many steps that was never asked, worked out without machines.
func (w *stopWorld) check() (uint32, error) {
	steps := uint32(0)
	if _, err := fmt.Sscanf(w.reports[0][len(w.reports[0])-2], "saved %d", &steps); err != nil {
		return 0, err
	}
	if e := w.ending.End(); steps != stopLast && (!e.Decided || e.Steps != steps) {
		return steps, fmt.Errorf("the run has ended after %d steps, and the end is %v", steps, e)
	}
	for r, want := range quietReports(w.n, steps) {
		if got := strings.Join(w.reports[r], ", "); got != want {
			return steps, fmt.Errorf("rank %d has reported\n%s, expected\n%s", r, got, want)
		}
	}
	return steps, nil
}

// quietReports are those of all ranks.
func quietReports(n int, steps uint32) []string {
	state, text := make([]uint64, n), make([]string, n)
	for r := range n {
		state[r] = mix(uint64(r))
	}
	for s := range steps {
		next := slices.Clone(state)
		for r := range n {
			for p := range n {
				if p != r {
					next[r] = mix(next[r], mix(state[p], uint64(s), uint64(r)))
				}
			}
			text[r] += fmt.Sprintf("begun %d, step %d is %x, ", s, s, next[r])
		}
		state = next
	}
	for r := range n {
		text[r] += fmt.Sprintf("begun %d, saved %d, done", steps, steps)
	}
	return text
}

const stopSeeds = 3000

// Whenever a run is asked to stop and whoever dies meanwhile, it ends after one step of all, with the reports of a run of so many steps.
func TestEndingWorld(t *testing.T) {
	ends, rounds := map[uint32]int{}, uint32(0)
	for seed := range uint64(stopSeeds) {
		w := newStopWorld(seed, noBug)
		steps, err := w.run()
		require.NoError(t, err, "seed %d", seed)
		ends[steps]++
		rounds = max(rounds, w.ending.End().Round)
	}
	for s := range uint32(stopLast + 1) {
		require.Positive(t, ends[s], "no run has ended after %d steps: %v", s, ends)
	}
	require.Greater(t, rounds, uint32(2))
	t.Logf("runs by steps done: %v; at most %d rounds", ends, rounds)
}

// Every rule of the protocol is needed: without it a seed fails.
func TestEndingWorldFindsBugs(t *testing.T) {
	for bug, name := range map[stopBug]string{deafBirth: "a process is not told at its start", unasked: "the collector is not asked",
		noFence: "lives that are over are heard", strays: "strays are kept", hastyEnd: "one process need not hold"} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(stopSeeds) {
				if _, err := newStopWorld(seed, bug).run(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("not found in %d seeds", stopSeeds)
		})
	}
}
