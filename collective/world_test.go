package collective

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// world runs the programs of a whole mesh in one goroutine: a queue per edge and channel, and a source of choices
// that says which message or program goes next.
type world struct {
	ranks    []*Rank
	ready    []node
	edges    []edge
	queues   map[edge][]Outgoing
	sent     int
	released int
	mangle   bool // a released payload is overwritten at once
	anyOrder bool // messages of one edge may overtake each other
	err      error
}

type edge struct {
	src, dst int
	channel  uint16
}

func newWorld(s mesh.Sizes, programs func(rank int) []func(nn.Comm)) *world {
	w := &world{queues: map[edge][]Outgoing{}}
	for r := range s.World() {
		w.ranks = append(w.ranks, NewRank(Place{Rank: r, Sizes: s}, programs(r)))
		w.wake(r, w.ranks[r].Programs())
	}
	return w
}

func (w *world) wake(rank int, programs []nn.Program) {
	for _, p := range programs {
		w.ready = append(w.ready, node{rank, p})
	}
}

// run makes choices until nothing can go on; pick(n) is in [0, n).
func (w *world) run(pick func(n int) int) {
	for w.err == nil && len(w.ready)+len(w.edges) > 0 {
		i := pick(len(w.ready) + len(w.edges))
		if i < len(w.ready) {
			n := w.ready[i]
			w.ready = slices.Delete(w.ready, i, i+1)
			w.turn(n)
			continue
		}
		w.deliver(i-len(w.ready), pick)
	}
}

func (w *world) turn(n node) {
	q, fx, err := w.ranks[n.rank].Resume(n.program)
	if q, failed := q.(Panicked); failed {
		err = fmt.Errorf("%v\n%s", q, q.Stack)
	}
	w.after(n.rank, fx, err)
}

func (w *world) after(rank int, fx Effects, err error) {
	w.collect(w.ranks[rank], fx.Read)
	w.sent += len(fx.Send)
	for _, o := range fx.Send {
		e := edge{int(o.Header.Src), int(o.Header.Dst), o.Header.Chan}
		if len(w.queues[e]) == 0 {
			w.edges = append(w.edges, e)
		}
		w.queues[e] = append(w.queues[e], o)
	}
	w.wake(rank, fx.Ready)
	w.err = err
}

func (w *world) deliver(i int, pick func(int) int) {
	e := w.edges[i]
	q := w.queues[e]
	at := 0
	if w.anyOrder {
		at = pick(len(q))
	}
	m := q[at]
	w.queues[e] = slices.Delete(q, at, at+1)
	if len(q) == 1 {
		w.edges = slices.Delete(w.edges, i, i+1)
	}
	fx, err := w.ranks[e.dst].Deliver(m.Header, m.Payload)
	w.after(e.dst, fx, err)
}

// collect takes read messages back: as a transport that gives payloads away would, or as one that uses them again.
func (w *world) collect(r *Rank, read []Incoming) {
	for _, m := range read {
		w.released++
		if w.mangle {
			for i := range m.Payload {
				m.Payload[i] = 0x55
			}
		} else {
			r.Recycle(m)
		}
	}
}

// statuses is what the stall detector would gather.
func (w *world) statuses() []Status {
	var all []Status
	for _, r := range w.ranks {
		all = append(all, r.Statuses()...)
	}
	return all
}

// each does something with every group.
func (w *world) each(do func(*Group)) {
	for _, r := range w.ranks {
		for _, g := range r.groups {
			do(g)
		}
	}
}

func (w *world) stop() {
	for _, r := range w.ranks {
		r.Stop()
	}
}

func (w *world) allDone() bool {
	return !slices.ContainsFunc(w.ranks, func(r *Rank) bool { return !r.Over() })
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
