package recovery

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"phalanx/messages"
)

// A world of toy ranks: in each step a rank sends a number to every other on two channels, takes theirs by name in a
// fixed order, and mixes what it got into its state. Everything else is the machine under test, a network and a disk that
// a seed makes bad.

const (
	toySteps = 6
	toyEvery = 2 // steps between snapshots
)

// toy is one life of a rank.
type toy struct {
	w        *world
	rank     int
	m        *Rank
	state    uint64
	step     uint32
	at       int // messages taken in this step
	sent     bool
	inbox    []Message
	finished bool
	started  bool
	applied  map[Edge]uint64 // next number, per lineage
}

// snapshot is what a disk holds.
type snapshot struct {
	state uint64
	at    State
}

type flight struct {
	data    *Message
	control *Control
	to      int
	inc     uint32 // of the receiver: a message to a dead life is lost
}

// faults are how likely things go wrong, in thousandths of a turn.
type faults struct {
	crashes                   int // left
	crash, drop, dup, reorder int
	tornDisk                  int
	zombie                    bool
}

type world struct {
	rng    *rand.Rand
	n      int
	bug    Bug
	lives  []*toy // nil: dead
	inc    []uint32
	disks  []map[uint32]snapshot
	gens   []uint32 // what every rank has on disk as committed
	net    []flight
	f      faults
	now    int64
	err    error
	oracle []uint64
	turns  int
}

func mix(parts ...uint64) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_ = binary.Write(h, binary.LittleEndian, p)
	}
	return h.Sum64()
}

// oracle is the end of a run without faults, worked out without the machine.
func oracle(n int) []uint64 {
	state := make([]uint64, n)
	for i := range state {
		state[i] = mix(uint64(i))
	}
	for s := range toySteps {
		next := slices.Clone(state)
		for r := range n {
			for p := range n {
				for ch := range 2 {
					if p != r {
						next[r] = mix(next[r], mix(state[p], uint64(s), uint64(r), uint64(ch)))
					}
				}
			}
		}
		state = next
	}
	return state
}

func newWorld(seed uint64, n int, bug Bug) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), n: n, bug: bug, lives: make([]*toy, n), inc: make([]uint32, n),
		gens: make([]uint32, n), oracle: oracle(n)}
	swarm := func(most int) int { // each kind of fault is off in half of the seeds
		if w.rng.IntN(2) == 0 {
			return 0
		}
		return w.rng.IntN(most)
	}
	w.f = faults{crashes: swarm(6), crash: 30, drop: swarm(100), dup: swarm(200), reorder: swarm(1000), tornDisk: swarm(300), zombie: w.rng.IntN(2) == 0}
	for r := range n {
		w.disks = append(w.disks, map[uint32]snapshot{0: {state: mix(uint64(r))}})
		w.begin(r)
	}
	return w
}

func (w *world) chance(thousandths int) bool { return w.rng.IntN(1000) < thousandths }

// begin is a new life from the snapshot of the generation that the rank knows.
func (w *world) begin(r int) {
	w.inc[r]++
	gen := w.gens[r]
	s, ok := w.disks[r][gen]
	if !ok {
		w.fail(fmt.Errorf("rank %d has no snapshot of generation %d", r, gen))
		return
	}
	var durable []uint32
	for step := range w.disks[r] {
		durable = append(durable, step)
	}
	t := &toy{w: w, rank: r, state: s.state, step: gen, applied: map[Edge]uint64{}}
	for e, n := range s.at.Need {
		t.applied[e] = n
	}
	t.m = New(Options{Rank: r, World: w.n, Incarnation: w.inc[r], Window: 4, Patience: 20, PatienceMax: 100, Planted: w.bug}, s.at, gen, durable)
	w.lives[r] = t
}

func (w *world) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// do carries effects out.
func (t *toy) do(fx Effects) {
	w := t.w
	for _, m := range fx.Deliver {
		if !t.started {
			w.fail(errors.New("a message was delivered before recovery was over"))
		}
		e := Edge{m.Header.Src, m.Header.Chan}
		if m.Header.Log != t.applied[e] {
			w.fail(fmt.Errorf("rank %d: message %d of %s applied, expected %d", t.rank, m.Header.Log, e, t.applied[e]))
		}
		t.applied[e] = m.Header.Log + 1
		t.inbox = append(t.inbox, m)
	}
	for _, m := range fx.Publish {
		w.send(flight{data: &m, to: int(m.Header.Dst)})
	}
	for _, c := range fx.Control {
		w.send(flight{control: &c, to: c.Dst})
	}
	if fx.Committed {
		w.committed(t)
	}
	if fx.Jump {
		w.gens[t.rank] = max(w.gens[t.rank], fx.JumpTo)
		w.begin(t.rank)
	}
}

// committed checks that every rank can go back to the generation, and frees older snapshots.
func (w *world) committed(t *toy) {
	gen := t.m.Generation()
	if gen < w.gens[t.rank] {
		w.fail(fmt.Errorf("rank %d went back from generation %d to %d", t.rank, w.gens[t.rank], gen))
	}
	w.gens[t.rank] = gen
	for r, d := range w.disks {
		if _, ok := d[gen]; !ok && w.gens[r] <= gen { // who is at a later one has freed this
			w.fail(fmt.Errorf("generation %d is committed and rank %d has no snapshot of it", gen, r))
		}
	}
	for step := range w.disks[t.rank] {
		if step < gen {
			delete(w.disks[t.rank], step)
		}
	}
}

func (w *world) send(f flight) {
	if w.chance(w.f.drop) {
		return
	}
	w.net = append(w.net, f)
	if w.chance(w.f.dup) {
		w.net = append(w.net, f)
	}
}

// missing are the edges of the message that the rank waits for.
func (t *toy) missing() []Edge {
	if t.finished || !t.started || !t.sent {
		return nil
	}
	return []Edge{t.next()}
}

// next is the edge of message t.at of a step: peers ascending, two channels each.
func (t *toy) next() Edge {
	p := t.at / 2
	if p >= t.rank {
		p++
	}
	return Edge{uint16(p), uint16(t.at % 2)}
}

// turn goes one stretch ahead: sends, or takes one message, or ends the step.
func (t *toy) turn() bool {
	if t.finished || !t.started {
		return false
	}
	if !t.sent {
		t.sendAll()
		return true
	}
	if t.at == 2*(t.w.n-1) {
		t.endStep()
		return true
	}
	e := t.next()
	for i, m := range t.inbox {
		if (Edge{m.Header.Src, m.Header.Chan}) != e {
			continue
		}
		if m.Header.Step != t.step {
			t.w.fail(fmt.Errorf("rank %d in step %d took a message of step %d", t.rank, t.step, m.Header.Step))
		}
		t.state = mix(t.state, binary.LittleEndian.Uint64(m.Payload))
		t.inbox = slices.Delete(t.inbox, i, i+1)
		t.at++
		t.do(t.m.Read(e))
		return true
	}
	return false
}

func (t *toy) sendAll() {
	for p := range t.w.n {
		for ch := range 2 {
			if p == t.rank {
				continue
			}
			b := binary.LittleEndian.AppendUint64(nil, mix(t.state, uint64(t.step), uint64(p), uint64(ch)))
			t.do(t.m.Send(Message{Header: messages.Header{Src: uint16(t.rank), Dst: uint16(p), Chan: uint16(ch), Step: t.step}, Payload: b}))
			if t.w.crashed(t) {
				return
			}
		}
	}
	t.sent = true
}

func (t *toy) endStep() {
	t.step++
	t.at, t.sent = 0, false
	if t.step == toySteps {
		t.finished = true
		t.do(t.m.Finish())
		return
	}
	if t.step%toyEvery == 0 {
		s := snapshot{t.state, t.m.Boundary(t.step)}
		if t.w.crashed(t) || t.w.chance(t.w.f.tornDisk) { // died before the rename, or a full disk
			return
		}
		t.w.disks[t.rank][t.step] = s
		if t.w.crashed(t) { // durable, and nobody knows
			return
		}
		t.do(t.m.Saved(t.step))
	}
}

// crashed kills a rank, sometimes.
func (w *world) crashed(t *toy) bool {
	if w.lives[t.rank] != t {
		return true
	}
	if w.f.crashes == 0 || !w.chance(w.f.crash) {
		return false
	}
	w.f.crashes--
	w.lives[t.rank] = nil
	return true
}

// run makes choices until everybody is done; an error is an invariant that does not hold.
func (w *world) run() error {
	for ; w.err == nil && w.turns < 60_000; w.turns++ {
		if w.over() {
			return w.check()
		}
		w.step()
	}
	if w.err == nil {
		w.err = fmt.Errorf("no end after %d turns", w.turns)
	}
	return w.err
}

func (w *world) over() bool {
	return !slices.ContainsFunc(w.lives, func(t *toy) bool { return t == nil || !t.finished })
}

func (w *world) check() error {
	for r, t := range w.lives {
		if t.state != w.oracle[r] {
			return fmt.Errorf("rank %d ended with state %x, without faults it is %x", r, t.state, w.oracle[r])
		}
	}
	return nil
}

func (w *world) step() {
	w.now++
	r := w.rng.IntN(w.n)
	t := w.lives[r]
	switch {
	case t == nil:
		if w.chance(100) {
			w.begin(r)
		}
	case !t.started:
		if w.chance(300) {
			t.started = true
			t.do(t.m.Start())
		}
	case w.crashed(t):
	case len(w.net) > 0 && w.chance(600):
		w.arrive()
	case !t.turn():
		t.do(t.m.Tick(w.now, t.missing()))
	}
}

// arrive takes a message off the net.
func (w *world) arrive() {
	i := 0
	if w.chance(w.f.reorder) {
		i = w.rng.IntN(len(w.net))
	}
	f := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	t := w.lives[f.to]
	if t == nil {
		return
	}
	var fx Effects
	var err error
	if f.data != nil {
		fx, err = t.m.Receive(*f.data)
	} else {
		fx, err = t.m.Control(*f.control)
	}
	if err != nil {
		w.fail(err)
		return
	}
	t.do(fx)
}
