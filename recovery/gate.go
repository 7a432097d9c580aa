package recovery

import (
	"fmt"
	"slices"
)

// A run that is asked to stop ends after a step that no rank has gone beyond, so that all of them have the same. Nobody knows
// where the furthest rank is, and a rank that dies may have been further than anybody has heard. So the end is agreed upon: Ending
// proposes one, the Gate of every process holds its ranks there and says so, and when all do, it is decided. ADR 0018 has the proof.

// End is what is proposed, or decided. Of two the later round counts.
type End struct {
	Round   uint32 `cbor:"1,keyasint"`           // from 1; 0: nobody has asked
	Steps   uint32 `cbor:"2,keyasint"`           // done when the run ends
	Decided bool   `cbor:"3,keyasint,omitempty"` // ranks end there; else they wait
}

// String is "2:14:decided": round, steps, and whether it is.
func (e End) String() string {
	what := "proposed"
	if e.Decided {
		what = "decided"
	}
	return fmt.Sprintf("%d:%d:%s", e.Round, e.Steps, what)
}

// MarshalText implements encoding.TextMarshaler.
func (e End) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *End) UnmarshalText(b []byte) error {
	var found End
	what := ""
	if n, err := fmt.Sscanf(string(b), "%d:%d:%s", &found.Round, &found.Steps, &what); n == 3 && err == nil {
		if found.Decided = what == "decided"; found.String() == string(b) {
			*e = found
			return nil
		}
	}
	return fmt.Errorf("found the end of a run %q, expected ROUND:STEPS:decided or ROUND:STEPS:proposed", b)
}

// Claim is what a process says of its ranks to the proposal that it has heard last.
type Claim struct {
	Round uint32 `cbor:"1,keyasint"`
	// Reach is the least end that its ranks can still make, as far as it knows.
	Reach uint32 `cbor:"2,keyasint"`
	// Holds says that all of them wait at the end, and that nothing of a step beyond it has been reported in any life.
	Holds bool `cbor:"3,keyasint,omitempty"`
}

// Pass is what a rank does at a boundary.
type Pass uint8

// What a rank does there.
const (
	Goes  Pass = iota // it begins the step
	Waits             // it is told later, by Heard
	Ends              // it ends without the step
)

// Gate is the part of a process, from its beginning: what it has not heard when its first rank begins, no process of these ranks
// before it had heard.
type Gate struct {
	end   End
	ranks []gated // ascending
}

// gated is a rank as its gate knows it.
type gated struct {
	rank  int
	known bool   // it has come by a boundary
	at    uint32 // the last one
	waits bool   // it is there
	sure  bool   // it is known what has been reported of it, and
	ahead bool   // that is more than this life has: an earlier one had begun the step
}

// NewGate is the gate of some ranks that have not begun. heard is what was proposed when their process was started.
func NewGate(ranks []int, heard End) *Gate {
	g := &Gate{end: heard}
	for _, r := range ranks {
		g.ranks = append(g.ranks, gated{rank: r})
	}
	return g
}

func (g *Gate) of(rank int) *gated {
	return &g.ranks[slices.IndexFunc(g.ranks, func(r gated) bool { return r.rank == rank })]
}

// At says that a life of a rank is at the boundary before a step, having reported all steps before.
func (g *Gate) At(rank int, step uint32) Pass {
	r := g.of(rank)
	*r = gated{rank: rank, known: true, at: step}
	switch {
	case g.end.Round == 0 || step < g.end.Steps:
		return Goes
	case g.end.Decided:
		return Ends
	}
	r.waits = true
	return Waits
}

// Reported says of a rank that waits before a step whether an earlier life of it has reported more than the steps before.
func (g *Gate) Reported(rank int, step uint32, ahead bool) {
	if r := g.of(rank); r.waits && r.at == step {
		r.sure, r.ahead = true, ahead
	}
}

// Freed is a rank that does not wait any more.
type Freed struct {
	Rank int
	Ends bool // else it goes on
}

// Heard takes what is proposed, which may come late or again, and frees ranks.
func (g *Gate) Heard(e End) (free []Freed) {
	if e.Round < g.end.Round || e.Round == g.end.Round && (!e.Decided || g.end.Decided) {
		return nil
	}
	g.end = e
	for i := range g.ranks {
		r := &g.ranks[i]
		switch {
		case !r.waits:
		case r.at < e.Steps:
			r.waits = false
			free = append(free, Freed{Rank: r.rank})
		case e.Decided:
			r.waits = false
			free = append(free, Freed{Rank: r.rank, Ends: true})
		}
	}
	return free
}

// Claim is what there is to say to the proposal.
func (g *Gate) Claim() Claim {
	c := Claim{Round: g.end.Round, Holds: g.end.Round > 0}
	for _, r := range g.ranks {
		c.Holds = c.Holds && r.waits && r.at == g.end.Steps && r.sure && !r.ahead
		c.Reach = max(c.Reach, r.reach())
	}
	return c
}

// reach is the least end that a rank can make: it finishes a step that it has begun.
func (r gated) reach() uint32 {
	if r.known && (!r.waits || r.ahead) {
		return r.at + 1
	}
	return r.at
}

// Waiting says whether a rank waits.
func (g *Gate) Waiting(rank int) bool { return g.of(rank).waits }
