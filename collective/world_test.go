package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// world runs the programs of a whole mesh in one goroutine: a queue per edge and channel, and a source of choices
// that says which message or program goes next.
type world struct {
	sizes    mesh.Sizes
	groups   map[[2]int]*Group // by rank and axis
	routines map[node]*Routine
	ports    map[portKey][]any
	ready    []turn
	edges    []edge
	queues   map[edge][]Outgoing
	pending  map[node]Request
	sent     int
	released int
	mangle   bool // a released payload is overwritten at once
	anyOrder bool // messages of one edge may overtake each other
	err      error
}

type portKey struct {
	to   node
	from nn.Program
	name string
}

type edge struct {
	src, dst int
	channel  uint16
}

type turn struct {
	n     node
	reply any
}

func newWorld(s mesh.Sizes, programs func(rank int) []func(nn.Comm)) *world {
	w := &world{sizes: s, groups: map[[2]int]*Group{}, routines: map[node]*Routine{}, ports: map[portKey][]any{},
		queues: map[edge][]Outgoing{}, pending: map[node]Request{}}
	for r := range s.World() {
		p := Place{Rank: r, Sizes: s}
		for _, a := range []mesh.Axis{mesh.TP, mesh.CP, mesh.DP, mesh.PP} {
			if s.Of(a) > 1 {
				w.groups[[2]int{r, int(a)}] = NewGroup(p, a)
			}
		}
		for i, code := range programs(r) {
			n := node{r, nn.Program(i)}
			w.routines[n] = NewRoutine(p, n.program, code)
			w.ready = append(w.ready, turn{n, nil})
		}
	}
	return w
}

// run makes choices until nothing can go on; pick(n) is in [0, n).
func (w *world) run(pick func(n int) int) {
	for w.err == nil && len(w.ready)+len(w.edges) > 0 {
		i := pick(len(w.ready) + len(w.edges))
		if i < len(w.ready) {
			t := w.ready[i]
			w.ready = append(w.ready[:i], w.ready[i+1:]...)
			w.turn(t)
			continue
		}
		w.deliver(i-len(w.ready), pick)
	}
}

func (w *world) turn(t turn) {
	r := w.routines[t.n]
	q := r.Resume(t.reply)
	w.pending[t.n] = q
	for _, s := range r.Outbox() {
		to := node{t.n.rank, s.To}
		k := portKey{to, t.n.program, s.Name}
		w.ports[k] = append(w.ports[k], s.V)
		w.wake(to)
	}
	switch q := q.(type) {
	case Collective:
		out, done, err := w.groups[[2]int{t.n.rank, int(q.Op.Axis)}].Begin(t.n.program, q.Op)
		w.collect(w.groups[[2]int{t.n.rank, int(q.Op.Axis)}])
		w.after(t.n.rank, out, done, err)
	case Receive:
		w.wake(t.n)
	case Panicked:
		w.err = fmt.Errorf("%v\n%s", q, q.Stack)
	}
}

// wake gives a waiting program its value, if it is there.
func (w *world) wake(n node) {
	q, waits := w.pending[n].(Receive)
	k := portKey{n, q.From, q.Name}
	if !waits || len(w.ports[k]) == 0 {
		return
	}
	w.pending[n] = nil
	w.ready = append(w.ready, turn{n, w.ports[k][0]})
	w.ports[k] = w.ports[k][1:]
}

func (w *world) after(rank int, out []Outgoing, done *Completion, err error) {
	w.sent += len(out)
	for _, o := range out {
		e := edge{int(o.Header.Src), int(o.Header.Dst), o.Header.Chan}
		if len(w.queues[e]) == 0 {
			w.edges = append(w.edges, e)
		}
		w.queues[e] = append(w.queues[e], o)
	}
	if done != nil {
		w.ready = append(w.ready, turn{node{rank, done.Program}, nil})
	}
	if err != nil {
		w.err = err
	}
}

func (w *world) deliver(i int, pick func(int) int) {
	e := w.edges[i]
	q := w.queues[e]
	at := 0
	if w.anyOrder {
		at = pick(len(q))
	}
	m := q[at]
	w.queues[e] = append(append([]Outgoing{}, q[:at]...), q[at+1:]...)
	if len(w.queues[e]) == 0 {
		w.edges = append(w.edges[:i], w.edges[i+1:]...)
	}
	g := w.groups[[2]int{e.dst, int(e.channel >> 8)}]
	out, done, err := g.Deliver(m.Header, m.Payload)
	w.collect(g)
	if len(done) == 0 {
		w.after(e.dst, out, nil, err)
		return
	}
	w.after(e.dst, out, &done[0], err)
}

// collect takes read messages back: as a transport that gives payloads away would, or as one that uses them again.
func (w *world) collect(g *Group) {
	for _, m := range g.Released() {
		w.released++
		if w.mangle {
			for i := range m.Payload {
				m.Payload[i] = 0x55
			}
		} else {
			g.Recycle(m.Payload)
		}
	}
}

// statuses is what the stall detector would gather.
func (w *world) statuses() []Status {
	var all []Status
	for n, r := range w.routines {
		s := r.Status()
		if q, ok := w.pending[n].(Collective); ok {
			s.Missing = w.groups[[2]int{n.rank, int(q.Op.Axis)}].Missing(n.program)
		}
		all = append(all, s)
	}
	return all
}

func (w *world) stop() {
	for _, r := range w.routines {
		r.Stop()
	}
}

func (w *world) allDone() bool {
	for _, r := range w.routines {
		if r.Resume(nil) != (Done{}) {
			return false
		}
	}
	return true
}

// pickOf makes a source of choices out of a rapid test: one drawn seed, so that shrinking stays fast.
func pickOf(t *rapid.T) func(int) int {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	return rng.IntN
}

var dtypes = []tensor.DType{tensor.F32, tensor.F64, tensor.I32, tensor.I64, tensor.U8, tensor.Bool}

// value is n deterministic elements of member j, with signs, large and small magnitudes.
func value(d tensor.DType, n, j int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(j)))
	b := make([]byte, 0, n*d.Size())
	for range n {
		switch d {
		case tensor.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(rng.NormFloat64()*math.Exp2(float64(rng.IntN(30)-15)))))
		case tensor.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(rng.NormFloat64()*math.Exp2(float64(rng.IntN(60)-30))))
		case tensor.I32:
			b = binary.LittleEndian.AppendUint32(b, rng.Uint32())
		case tensor.I64:
			b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
		case tensor.U8:
			b = append(b, byte(rng.Uint32()))
		case tensor.Bool:
			b = append(b, byte(rng.Uint32()&1))
		}
	}
	return append([]byte{}, b...) // large enough buffers are 8-aligned
}

// oracle combines values element by element in rank order, without any of the code under test.
func oracle(d tensor.DType, how nn.ReduceKind, values [][]byte) []byte {
	acc := append([]byte{}, values[0]...)
	for _, v := range values[1:] {
		for i := 0; i+d.Size() <= len(acc); i += d.Size() {
			a, b := acc[i:], v[i:]
			switch d {
			case tensor.F32:
				x, y := math.Float32frombits(binary.LittleEndian.Uint32(a)), math.Float32frombits(binary.LittleEndian.Uint32(b))
				binary.LittleEndian.PutUint32(a, math.Float32bits(pickFloat(how, x, y)))
			case tensor.F64:
				x, y := math.Float64frombits(binary.LittleEndian.Uint64(a)), math.Float64frombits(binary.LittleEndian.Uint64(b))
				binary.LittleEndian.PutUint64(a, math.Float64bits(pickFloat(how, x, y)))
			case tensor.I32:
				x, y := int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b))
				binary.LittleEndian.PutUint32(a, uint32(pickFloat(how, x, y)))
			case tensor.I64:
				x, y := int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b))
				binary.LittleEndian.PutUint64(a, uint64(pickFloat(how, x, y)))
			default:
				a[0] = pickFloat(how, a[0], b[0])
			}
		}
	}
	return acc
}

func pickFloat[T tensor.Number](how nn.ReduceKind, a, b T) T {
	if how == nn.Sum {
		return a + b
	}
	if b > a {
		return b
	}
	return a
}
