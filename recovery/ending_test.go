package recovery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/messages"
)

// A gate with two ranks, what it is told, and what it says to the proposal after each.
func TestGate(t *testing.T) {
	type event struct {
		do    func(g *Gate) any
		gives any
		claim Claim
	}
	at := func(rank int, step uint32) func(*Gate) any { return func(g *Gate) any { return g.At(rank, step) } }
	hear := func(round, steps uint32, decided bool) func(*Gate) any {
		return func(g *Gate) any { return g.Heard(End{round, steps, decided}) }
	}
	reported := func(rank int, step uint32, ahead bool) func(*Gate) any {
		return func(g *Gate) any { g.Reported(rank, step, ahead); return nil }
	}
	var nobody []Freed
	for name, c := range map[string]struct {
		heard  End
		events []event
	}{
		"nobody asks": {End{}, []event{
			{at(3, 0), Goes, Claim{Reach: 1}},
			{at(5, 7), Goes, Claim{Reach: 8}},
		}},
		"both come to the end": {End{}, []event{
			{at(3, 4), Goes, Claim{Reach: 5}},
			{hear(1, 6, false), nobody, Claim{Round: 1, Reach: 5}},
			{at(3, 5), Goes, Claim{Round: 1, Reach: 6}},
			{at(5, 5), Goes, Claim{Round: 1, Reach: 6}},
			{at(3, 6), Waits, Claim{Round: 1, Reach: 6}},
			{at(5, 6), Waits, Claim{Round: 1, Reach: 6}},
			{reported(5, 6, false), nil, Claim{Round: 1, Reach: 6}},
			{reported(3, 5, false), nil, Claim{Round: 1, Reach: 6}}, // of a boundary that it has left
			{reported(3, 6, false), nil, Claim{Round: 1, Reach: 6, Holds: true}},
			{hear(1, 6, false), nobody, Claim{Round: 1, Reach: 6, Holds: true}},
			{hear(1, 6, true), []Freed{{3, true}, {5, true}}, Claim{Round: 1, Reach: 7}},
			{hear(1, 6, true), nobody, Claim{Round: 1, Reach: 7}},
		}},
		"one has begun the step": {End{}, []event{
			{at(3, 6), Goes, Claim{Reach: 7}},
			{hear(1, 6, false), nobody, Claim{Round: 1, Reach: 7}},
			{at(5, 6), Waits, Claim{Round: 1, Reach: 7}},
			{reported(5, 6, false), nil, Claim{Round: 1, Reach: 7}},
			{hear(2, 7, false), []Freed{{5, false}}, Claim{Round: 2, Reach: 7}},
			{hear(1, 6, false), nobody, Claim{Round: 2, Reach: 7}}, // late
			{at(3, 7), Waits, Claim{Round: 2, Reach: 7}},
			{at(5, 7), Waits, Claim{Round: 2, Reach: 7}},
		}},
		"an earlier life had begun it": {End{1, 6, false}, []event{
			{at(3, 6), Waits, Claim{Round: 1, Reach: 6}},
			{at(5, 6), Waits, Claim{Round: 1, Reach: 6}},
			{reported(3, 6, false), nil, Claim{Round: 1, Reach: 6}},
			{reported(5, 6, true), nil, Claim{Round: 1, Reach: 7}},
		}},
		"a life begins beyond the end": {End{1, 6, false}, []event{
			{at(3, 8), Waits, Claim{Round: 1, Reach: 8}},
			{reported(3, 8, false), nil, Claim{Round: 1, Reach: 8}},
			{at(5, 5), Goes, Claim{Round: 1, Reach: 8}},
			{hear(2, 8, false), nobody, Claim{Round: 2, Reach: 8}},
			{at(5, 8), Waits, Claim{Round: 2, Reach: 8}},
			{reported(5, 8, false), nil, Claim{Round: 2, Reach: 8, Holds: true}},
		}},
		"a life begins when it is decided": {End{2, 6, true}, []event{
			{at(3, 5), Goes, Claim{Round: 2, Reach: 6}},
			{at(3, 6), Ends, Claim{Round: 2, Reach: 7}},
		}},
		"a rank goes back while it waits": {End{1, 6, false}, []event{
			{at(3, 6), Waits, Claim{Round: 1, Reach: 6}},
			{at(3, 4), Goes, Claim{Round: 1, Reach: 5}},
			{hear(2, 9, false), nobody, Claim{Round: 2, Reach: 5}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGate([]int{3, 5}, c.heard)
			for i, e := range c.events {
				require.Equal(t, e.gives, e.do(g), "event %d", i)
				require.Equal(t, e.claim, g.Claim(), "event %d", i)
			}
		})
	}
}

// Two processes of a run of ten steps: what they say, and the end that they are told.
func TestEnding(t *testing.T) {
	type said struct {
		process int
		claim   Claim
		news    bool
		end     End
	}
	for name, c := range map[string]struct {
		begun uint32
		said  []said
	}{
		"both hold": {4, []said{
			{0, Claim{}, false, End{1, 4, false}}, // it has not heard
			{0, Claim{1, 3, false}, false, End{1, 4, false}},
			{0, Claim{1, 4, true}, false, End{1, 4, false}},
			{0, Claim{1, 4, true}, false, End{1, 4, false}},
			{1, Claim{1, 4, true}, true, End{1, 4, true}},
			{1, Claim{1, 4, true}, false, End{1, 4, true}},
			{1, Claim{1, 7, false}, false, End{1, 4, true}}, // it has been told, and ends
		}},
		"one is further": {4, []said{
			{0, Claim{1, 4, true}, false, End{1, 4, false}},
			{1, Claim{1, 6, false}, true, End{2, 6, false}},
			{0, Claim{1, 9, false}, false, End{2, 6, false}}, // late
			{1, Claim{2, 6, true}, false, End{2, 6, false}},
			{1, Claim{2, 6, true}, false, End{2, 6, false}}, // what the other has said does not count any more
			{0, Claim{2, 6, true}, true, End{2, 6, true}},
		}},
		"the last step has begun": {9, []said{
			{0, Claim{1, 9, true}, false, End{1, 9, false}},
			{1, Claim{1, 10, false}, true, End{2, 10, false}},
			{1, Claim{2, 10, false}, false, End{2, 10, false}},
		}},
		"it is over": {12, []said{
			{0, Claim{1, 11, false}, false, End{1, 10, false}},
		}},
		"nobody knows the process": {4, []said{
			{2, Claim{1, 8, false}, false, End{1, 4, false}},
			{-1, Claim{1, 8, false}, false, End{1, 4, false}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := NewEnding(2, 10)
			require.False(t, e.Claimed(0, Claim{Reach: 3}), "nobody has asked")
			require.Zero(t, e.End())
			e.Ask(c.begun)
			e.Ask(c.begun + 1) // once
			for i, s := range c.said {
				require.Equal(t, s.news, e.Claimed(s.process, s.claim), "claim %d", i)
				require.Equal(t, s.end, e.End(), "claim %d", i)
			}
		})
	}
}

// An end is given to a process as text.
func TestEndText(t *testing.T) {
	for _, e := range []End{{}, {1, 0, false}, {3, 14, true}, {1<<32 - 1, 1<<32 - 1, true}} {
		b, err := e.MarshalText()
		require.NoError(t, err)
		var got End
		require.NoError(t, got.UnmarshalText(b))
		require.Equal(t, e, got)
	}
	for _, text := range []string{"", "1", "1:2", "1:2:maybe", "01:2:decided", "1:2:decided ", "-1:2:decided", "1:4294967296:decided"} {
		var e End
		require.ErrorContains(t, e.UnmarshalText([]byte(text)), "expected ROUND:STEPS:decided or ROUND:STEPS:proposed", text)
	}
}

// What the collector has of a rank is known when it has answered this life, and not a life before.
func TestReported(t *testing.T) {
	const collector = 2
	life := func(inc uint32) *Rank {
		return New(Options{Rank: 0, World: 3, Incarnation: inc, Collector: collector}, State{}, 0, []uint32{0})
	}
	answer := func(of uint32, has uint64) Control {
		return Control{Kind: Need, Src: collector, Incarnation: 1, Of: of, Numbers: map[uint16]uint64{7: has}}
	}
	r := life(1025)
	require.Empty(t, r.Greet().Control, "it has not begun")
	r.Start()
	greeting := r.Greet().Control
	require.Len(t, greeting, 1)
	require.Equal(t, Hello, greeting[0].Kind)
	require.Equal(t, collector, greeting[0].Dst)
	_, err := r.Control(answer(1, 0))
	require.NoError(t, err)
	_, known := r.Reported()
	require.False(t, known, "the answer is to another life")
	_, err = r.Control(answer(1025, 2))
	require.NoError(t, err)
	ahead, known := r.Reported()
	require.True(t, known)
	require.True(t, ahead)
	for range 2 {
		r.Send(Message{Header: messages.Header{Dst: collector, Chan: 7}, Payload: []byte{1}})
	}
	ahead, known = r.Reported()
	require.True(t, known)
	require.False(t, ahead)
}
