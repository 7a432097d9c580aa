package faulty

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"phalanx/messages"
	"phalanx/transport"
)

// Any is every rank.
const Any = -1

// Rule is what befalls the frames of one rank to another during some steps: pieces of messages, and the link's own
// control frames. A frame meets one of Drop, Duplicate, Reorder and Corrupt at most; their sum is below 1.
type Rule struct {
	From, To    int    // ranks, or Any
	First, Last uint32 // Header.Step of the messages that suffer, both included; control frames suffer with the last message before
	Seed        uint64 // of what happens to which frame
	Met         func() // called at the first frame of each edge that suffers, which it must not delay; nil: nobody looks

	Drop      float64       // share that never arrives
	Duplicate float64       // share that arrives twice
	Reorder   float64       // share that later ones overtake
	Corrupt   float64       // share in which one bit of header or payload flips
	Delay     time.Duration // every frame waits for up to so long, in order
	Partition time.Duration // nothing passes for so long, from the first frame of the window on
}

// overtaken is how long a frame waits for later ones to overtake it.
const overtaken = 5 * time.Millisecond

// Wire harms the frames that links of one process send. It is a transport.Wire, for Options.Wire of a network of links
// that heal. What happens to a frame follows from the seed, the life, and the frame's place among those of its edge and
// connection; only Partition looks at the time.
type Wire struct {
	rules []Rule

	mu    sync.Mutex
	life  uint64
	steps map[int]uint32 // by source: of its last message
	edges map[edge]*edgeState
	count Counts
}

// Counts is how many frames have met what.
type Counts struct{ Dropped, Duplicated, Reordered, Corrupted, Delayed, Partitioned uint64 }

type edge struct {
	rule, src, dst int
	words          bool // control frames, which have a connection of their own
}

type edgeState struct {
	nth   uint64
	ends  time.Time // of the partition
	after time.Time // frames that wait arrive in order
}

// NewWire makes a wire with some rules. life tells the lives of a process apart: they suffer differently.
func NewWire(rules []Rule, life uint32) *Wire {
	return &Wire{rules: rules, life: uint64(life), steps: map[int]uint32{}, edges: map[edge]*edgeState{}}
}

// Counts are the figures so far.
func (w *Wire) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Send implements transport.Wire.
func (w *Wire) Send(src, dst int, frame []byte) []transport.Flight {
	h, err := messages.Decode(frame)
	w.mu.Lock()
	defer w.mu.Unlock()
	words := err == nil && h.Kind != messages.Data && h.Kind != messages.Hello
	if err == nil && h.Kind == messages.Data {
		w.steps[src] = h.Step
	}
	out, now := []transport.Flight{{Frame: frame}}, time.Now()
	for i := range w.rules {
		r, e := &w.rules[i], edge{i, src, dst, words}
		switch {
		case !r.of(src, dst):
		case r.First <= w.steps[src] && w.steps[src] <= r.Last:
			out = w.harm(r, e, out, now)
		case w.edges[e] != nil: // it does not overtake what waits
			for k := range out {
				out[k] = w.edges[e].behind(out[k], now, 0)
			}
		}
	}
	return out
}

// of says whether a rule is about an edge.
func (r *Rule) of(src, dst int) bool {
	return (r.From == Any || r.From == src) && (r.To == Any || r.To == dst)
}

// harm applies one rule to frames that come together.
func (w *Wire) harm(r *Rule, e edge, in []transport.Flight, now time.Time) (out []transport.Flight) {
	s := w.edges[e]
	if s == nil {
		s = &edgeState{ends: now.Add(r.Partition)}
		w.edges[e] = s
		if r.Met != nil {
			r.Met()
		}
	}
	for _, f := range in {
		draw := rand.New(rand.NewPCG(r.Seed^e.key()^w.life, s.nth))
		s.nth++
		if now.Before(s.ends) {
			w.count.Partitioned++
			continue
		}
		if r.Delay > 0 {
			f = s.behind(f, now, time.Duration(draw.Float64()*float64(r.Delay)))
			w.count.Delayed++
		}
		out = append(out, w.strike(r, f, draw, now)...)
	}
	return out
}

// behind lets a frame wait, and no less than those before it.
func (s *edgeState) behind(f transport.Flight, now time.Time, wait time.Duration) transport.Flight {
	at := later(f.At, now, wait)
	if at.Before(s.after) {
		at = s.after
	}
	if !at.After(now) {
		return f
	}
	s.after = at
	return transport.Flight{Frame: slices.Clone(f.Frame), At: at}
}

// key is a number of its own for each edge.
func (e *edge) key() uint64 {
	k := uint64(e.src)<<48 ^ uint64(e.dst)<<32
	if e.words {
		k ^= 1 << 31
	}
	return k
}

// later is some time after a flight's, or after now.
func later(at, now time.Time, wait time.Duration) time.Time {
	if at.IsZero() {
		at = now
	}
	return at.Add(wait)
}

// strike is the one thing that happens to a frame, if any.
func (w *Wire) strike(r *Rule, f transport.Flight, draw *rand.Rand, now time.Time) []transport.Flight {
	x := draw.Float64()
	switch {
	case x < r.Drop:
		w.count.Dropped++
		return nil
	case x < r.Drop+r.Duplicate:
		w.count.Duplicated++
		return []transport.Flight{f, {Frame: slices.Clone(f.Frame), At: f.At}}
	case x < r.Drop+r.Duplicate+r.Reorder:
		w.count.Reordered++
		return []transport.Flight{{Frame: slices.Clone(f.Frame), At: later(f.At, now, overtaken)}}
	case x < r.Drop+r.Duplicate+r.Reorder+r.Corrupt:
		w.count.Corrupted++
		bad := slices.Clone(f.Frame)
		bit := draw.IntN(8 * len(bad))
		bad[bit/8] ^= 1 << (bit % 8)
		return []transport.Flight{{Frame: bad, At: f.At}}
	}
	return []transport.Flight{f}
}
