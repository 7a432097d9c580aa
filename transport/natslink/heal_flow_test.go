package natslink

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"phalanx/messages"
	"phalanx/transport"
)

// world is two healing links whose frames cross a wire that the test can spoil, without NATS and threads. Each end has
// an owner that keeps what it has sent and asks for what it lacks when Lost says so, and at no other time.
type world struct {
	t     *rapid.T
	ends  [2]*end
	data  [2][][]byte // to each end
	words [2][][]byte
	asks  [2][]ask // of the owners, which cross unharmed, but late
}

// ask is what an owner has of the other's messages, by channel. Real ones are control bodies, repeated until answered.
type ask struct {
	inc  uint32
	need [2]int
	back bool // a greeting: ask too
}

type end struct {
	w    *world
	me   int
	inc  uint32
	link *link
	sent [2][][]byte // by channel: the log
	need [2]int
}

const awayTicks = 6

// live begins a life: a link that knows nothing, and an owner that knows what it knew and asks.
func (e *end) live() {
	e.inc++
	n := &Network{opts: Options{Run: "world", Ranks: 2}, log: zap.NewNop()}
	n.id = n.opts.identity()
	n.id.Incarnation = e.inc
	e.link = newLink(n, e.me, transport.Handler{
		Receive: e.receive,
		Fail:    func(err error) { e.w.t.Fatalf("end %d failed: %v", e.me, err) },
		Lost:    func(peer int) { e.ask(false) },
	}, limits{piece: 64, edge: 2000, channel: 1000})
	e.link.say = func(dst int, frame []byte) error {
		e.w.words[dst] = append(e.w.words[dst], slices.Clone(frame))
		return nil
	}
}

// receive takes what comes next, and drops what has come or comes too early.
func (e *end) receive(m transport.Message) {
	ch := m.Header.Chan
	if int(m.Header.Log) == e.need[ch] {
		require.Equal(e.w.t, e.w.ends[1-e.me].sent[ch][e.need[ch]], m.Payload)
		e.need[ch]++
	}
	e.link.Consumed(m)
}

func (e *end) ask(back bool) {
	e.w.asks[1-e.me] = append(e.w.asks[1-e.me], ask{inc: e.inc, need: e.need, back: back})
}

func (e *end) send(ch, i int) {
	require.NoError(e.w.t, e.link.Send(transport.Message{
		Header:  messages.Header{Dst: uint16(1 - e.me), Chan: uint16(ch), Log: uint64(i)},
		Payload: slices.Clone(e.sent[ch][i])}))
}

// answer takes the next ask of an end: what the other lacks is sent again.
func (w *world) answer(me int) {
	if len(w.asks[me]) == 0 {
		return
	}
	a, l := w.asks[me][0], w.ends[me].link
	w.asks[me] = w.asks[me][1:]
	l.mu.Lock()
	late := l.outdated(1-me, a.inc) // as the frame of a control body
	l.unlock()
	if late {
		return
	}
	if a.back {
		w.ends[me].ask(false)
	}
	for ch, from := range a.need {
		for i := from; i < len(w.ends[me].sent[ch]); i++ {
			w.ends[me].send(ch, i)
		}
	}
}

// publish moves pieces of an end to the wire.
func (w *world) publish(e *end) {
	for {
		p, ok := e.link.out.next(e.link.net.id, e.me)
		if !ok {
			break
		}
		w.data[1-e.me] = append(w.data[1-e.me], encodeFrame(nil, &p.header, p.payload))
	}
	e.link.sendBodies()
	e.link.sendCredits()
}

// arrive brings the first frame of a wire to its end.
func (w *world) arrive(to int, data bool) {
	wire := &w.words[to]
	if data {
		wire = &w.data[to]
	}
	if len(*wire) == 0 {
		return
	}
	f := (*wire)[0]
	*wire = (*wire)[1:]
	if data {
		w.ends[to].link.frame(1-to, f)
	} else {
		w.ends[to].link.heard(f)
	}
}

// spoil does harm to a wire.
func (w *world) spoil(wire *[][]byte) {
	if len(*wire) == 0 {
		return
	}
	i := rapid.IntRange(0, len(*wire)-1).Draw(w.t, "victim")
	switch rapid.IntRange(0, 3).Draw(w.t, "harm") {
	case 0:
		*wire = slices.Delete(*wire, i, i+1)
	case 1:
		*wire = append(*wire, slices.Clone((*wire)[i]))
	case 2:
		j := rapid.IntRange(0, len(*wire)-1).Draw(w.t, "other")
		(*wire)[i], (*wire)[j] = (*wire)[j], (*wire)[i]
	case 3:
		bit := rapid.IntRange(0, 8*len((*wire)[i])-1).Draw(w.t, "bit")
		(*wire)[i] = slices.Clone((*wire)[i])
		(*wire)[i][bit/8] ^= 1 << (bit % 8)
	}
}

func (w *world) restart(e *end) {
	e.live()
	e.ask(true)
	w.asks[e.me] = nil // asked of a life that is no more
}

func (w *world) tick() {
	for _, e := range w.ends {
		e.link.watch(awayTicks)
		w.publish(e)
	}
}

// settle lets everything that can happen happen, without further harm.
func (w *world) settle() {
	for range 40 {
		for range 3 {
			for i, e := range w.ends {
				w.publish(e)
				for len(w.data[i])+len(w.words[i])+len(w.asks[i]) > 0 {
					w.arrive(i, true)
					w.arrive(i, false)
					w.answer(i)
					w.publish(e)
				}
			}
		}
		w.tick()
	}
}

// TestEdgesHeal: under losses, repeats, disorder and damage of pieces, credits and resets, under silence and restarts of
// both ends, an owner that asks when Lost is called, and never else, has every message once and in order, and the links
// keep nothing.
func TestEdgesHeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t}
		for i := range w.ends {
			w.ends[i] = &end{w: w, me: i}
			w.ends[i].live()
		}
		for range rapid.IntRange(1, 120).Draw(t, "moves") {
			i := rapid.IntRange(0, 1).Draw(t, "end")
			e := w.ends[i]
			switch rapid.IntRange(0, 9).Draw(t, "move") {
			case 0, 1:
				ch := rapid.IntRange(0, 1).Draw(t, "chan")
				body := make([]byte, rapid.IntRange(4, 300).Draw(t, "size"))
				binary.LittleEndian.PutUint32(body, uint32(len(e.sent[ch])))
				e.sent[ch] = append(e.sent[ch], body)
				e.send(ch, len(e.sent[ch])-1)
			case 2:
				w.publish(e)
			case 3, 4:
				w.arrive(i, true)
			case 5:
				w.arrive(i, false)
			case 6:
				w.answer(i)
			case 7:
				w.spoil(&w.data[i])
			case 8:
				w.spoil(&w.words[i])
			case 9:
				switch rapid.IntRange(0, 9).Draw(t, "rare") {
				case 0:
					w.restart(e)
				case 1, 2:
					for range awayTicks + 2 { // the other end is heard no more
						e.link.watch(awayTicks)
						w.publish(e)
						w.data[1-i] = nil
					}
				default:
					w.tick()
				}
			}
		}
		w.settle()
		for i, e := range w.ends {
			for ch := range e.sent {
				require.Equal(t, len(e.sent[ch]), w.ends[1-i].need[ch], "from %d on channel %d", i, ch)
			}
			require.Empty(t, e.link.in.owned)
			for _, o := range e.link.out.order {
				require.False(t, o.waits() || o.away || o.greet)
			}
		}
	})
}
