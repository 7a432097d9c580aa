package recovery

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/messages"
)

// aControl draws any control message that a rank can make.
func aControl(t *rapid.T) Control {
	c := Control{
		Kind: Kind(rapid.IntRange(1, int(kindEnd)-1).Draw(t, "kind")), Src: rapid.IntRange(0, math.MaxUint16).Draw(t, "src"),
		Dst: rapid.IntRange(0, math.MaxUint16).Draw(t, "dst"), Incarnation: rapid.Uint32().Draw(t, "incarnation"),
		Generation: rapid.Uint32().Draw(t, "generation"), Ended: rapid.Bool().Draw(t, "ended"), Every: rapid.Uint32().Draw(t, "every"),
		Numbers: rapid.MapOfN(rapid.Uint16(), rapid.Uint64(), 0, 40).Draw(t, "numbers"),
		Steps:   rapid.SliceOfN(rapid.Uint32(), 0, 40).Draw(t, "steps"),
	}
	if len(c.Numbers) == 0 {
		c.Numbers = nil
	}
	if len(c.Steps) == 0 {
		c.Steps = nil
	}
	return c
}

func TestControlTravelsAsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := aControl(t)
		b := EncodeControl(c)
		got, err := DecodeControl(b)
		require.NoError(t, err)
		require.Equal(t, c, got)
		require.Equal(t, b, EncodeControl(got))
	})
}

// The bytes by RFC 8949, written out: ranks of different releases must agree on them.
func TestControlBytes(t *testing.T) {
	c := Control{Kind: Need, Src: 3, Dst: 0, Incarnation: 2, Generation: 300, Numbers: map[uint16]uint64{0x400: 7}}
	want := []byte{0xa6, 1, 2, 2, 3, 3, 0, 4, 2, 5, 0x19, 0x01, 0x2c, 6, 0xa1, 0x19, 0x04, 0x00, 7}
	require.Equal(t, want, EncodeControl(c))
}

// The largest message that a rank makes fits.
func TestControlIsBounded(t *testing.T) {
	r := New(Options{Rank: 0, World: 2, Incarnation: math.MaxUint32, Every: math.MaxUint32}, State{}, 0, nil)
	for step := range uint32(2 * StepsMax) {
		r.Saved(math.MaxUint32 - step)
	}
	for ch := range 2048 {
		r.in[Edge{1, uint16(math.MaxUint16 - ch)}] = &inbox{need: math.MaxUint64}
	}
	c := r.needs(1)
	require.Len(t, c.Steps, StepsMax)
	require.Equal(t, uint32(math.MaxUint32), c.Steps[StepsMax-1])
	b := EncodeControl(c)
	require.LessOrEqual(t, len(b), ControlBytesMax)
	_, err := DecodeControl(b)
	require.NoError(t, err)
}

func TestControlRefusesOtherBytes(t *testing.T) {
	good := EncodeControl(Control{Kind: Hello, Src: 1, Dst: 2, Steps: []uint32{4}})
	for name, b := range map[string][]byte{
		"empty":             {},
		"cut":               good[:len(good)-1],
		"more behind":       append(bytes.Clone(good), 0),
		"no kind":           EncodeControl(Control{Src: 1}),
		"another kind":      EncodeControl(Control{Kind: kindEnd}),
		"unknown key":       {0xa1, 0x18, 0x63, 0},
		"key twice":         {0xa2, 1, 1, 1, 1},
		"long form of 1":    append([]byte{0xa7, 1, 0x18, 1}, good[3:]...),
		"indefinite length": append(append([]byte{0xbf}, good[1:]...), 0xff),
		"too long":          make([]byte, ControlBytesMax+1),
	} {
		_, err := DecodeControl(b)
		var wrong *ControlError
		require.ErrorAs(t, err, &wrong, name)
	}
}

func FuzzDecodeControl(f *testing.F) {
	f.Add(EncodeControl(Control{Kind: Need, Src: 3, Numbers: map[uint16]uint64{0x400: 7, 1: 2}, Steps: []uint32{1, 2}, Ended: true, Every: 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeControl(b)
		if err == nil {
			require.Equal(t, b, EncodeControl(c))
		}
	})
}

// A control message to somebody else, or from nobody, is named and changes nothing.
func TestControlOfStrangers(t *testing.T) {
	for _, c := range []Control{{Kind: Hello, Src: 5, Dst: 0}, {Kind: Hello, Src: 0, Dst: 0}, {Kind: Hello, Src: 1, Dst: 1}, {Kind: Hello, Src: -1, Dst: 0}} {
		r := New(Options{Rank: 0, World: 2, Incarnation: 1}, State{}, 0, nil)
		_, err := r.Control(c)
		var stranger *StrangerError
		require.ErrorAs(t, err, &stranger)
	}
}

func send(r *Rank, dst, step, size int) Effects {
	return r.Send(Message{Header: messages.Header{Src: uint16(r.o.Rank), Dst: uint16(dst), Step: uint32(step)}, Payload: make([]byte, size)})
}

// A link that begins anew makes a rank ask its peer, and nothing else.
func TestLostAsksThePeer(t *testing.T) {
	r := New(Options{Rank: 0, World: 3, Incarnation: 1}, State{}, 0, nil)
	require.Empty(t, r.Lost(1), "before its start, which asks everybody")
	r.Start()
	_, err := r.Receive(Message{Header: messages.Header{Src: 1, Chan: 9}, Payload: []byte{1}})
	require.NoError(t, err)
	fx := r.Lost(1)
	require.Equal(t, Effects{Control: []Control{{Kind: Need, Src: 0, Dst: 1, Incarnation: 1, Numbers: map[uint16]uint64{9: 1}}}}, fx)
}

// What the collector has is not kept, and still counts for where a step begins; a life that computes again sends it nothing
// that it has.
func TestLogToTheCollector(t *testing.T) {
	const collector = 2
	o := Options{Rank: 0, World: 3, Incarnation: 1, Collector: collector}
	r := New(o, State{}, 0, nil)
	r.Start()
	for step := range 4 {
		send(r, collector, step, 10)
		send(r, 1, step, 100)
	}
	require.Equal(t, int64(440), r.Stats().LogBytes)
	need := func(r *Rank, n uint64) Effects {
		fx, err := r.Control(Control{Kind: Need, Src: collector, Dst: 0, Incarnation: 1, Numbers: map[uint16]uint64{0: n}})
		require.NoError(t, err)
		return fx
	}
	fx := need(r, 3)
	require.Len(t, fx.Publish, 1, "the fourth may be lost")
	require.Equal(t, int64(410), r.Stats().LogBytes)
	require.Equal(t, uint64(2), r.Boundary(2).Sent[Edge{collector, 0}])
	fx = need(r, 1)
	require.Len(t, fx.Publish, 1, "an old request gets what is missing and no more")
	require.Len(t, fx.Publish[0].Payload, 10)

	o.Incarnation = 2
	again := New(o, r.Boundary(1), 0, nil)
	again.Start()
	need(again, 3)
	require.Empty(t, send(again, collector, 1, 10).Publish)
	require.Empty(t, send(again, collector, 2, 10).Publish)
	require.Zero(t, again.Stats().LogBytes)
	require.Len(t, send(again, collector, 3, 10).Publish, 1)
}

// The collector takes part in the commit.
func TestCommitWaitsForTheCollector(t *testing.T) {
	r := New(Options{Rank: 0, World: 3, Incarnation: 1, Collector: 2}, State{}, 0, []uint32{0})
	r.Start()
	r.Saved(4)
	durable := func(src int, steps ...uint32) Effects {
		fx, err := r.Control(Control{Kind: Durable, Src: src, Dst: 0, Incarnation: 1, Steps: steps})
		require.NoError(t, err)
		return fx
	}
	require.False(t, durable(1, 4).Committed)
	require.False(t, durable(2, 1, 2, 3).Committed, "reports of step 3 are missing")
	require.True(t, durable(2, 4).Committed)
	require.Equal(t, uint32(4), r.Generation())
}

// Ranks that are done find out that all are, whatever is lost, and then are quiet.
func TestDoneIsRepeated(t *testing.T) {
	a := New(Options{Rank: 0, World: 2, Incarnation: 1, Patience: 10, PatienceMax: 20}, State{}, 0, nil)
	b := New(Options{Rank: 1, World: 2, Incarnation: 1, Patience: 10, PatienceMax: 20}, State{}, 0, nil)
	a.Start()
	b.Start()
	a.Finish()
	b.Finish() // both are lost
	require.Empty(t, a.Tick(5, nil))
	fx := a.Tick(15, nil)
	require.Len(t, fx.Control, 1)
	answer, err := b.Control(fx.Control[0])
	require.NoError(t, err)
	require.True(t, b.Over())
	require.Len(t, answer.Control, 1)
	last, err := a.Control(answer.Control[0])
	require.NoError(t, err)
	require.True(t, a.Over())
	require.Empty(t, last)
	require.Empty(t, a.Tick(1000, nil))
	require.Empty(t, b.Tick(1000, nil))
}

// A log of 100 bytes a step that may hold 500 is kept by snapshots at most 4 steps apart, and 12 = 3·4.
func TestLogMaxShortensSnapshots(t *testing.T) {
	o := Options{Rank: 0, World: 2, Incarnation: 1, Every: 12, LogMax: 500}
	r := New(o, State{}, 0, []uint32{0})
	r.Start()
	require.True(t, r.Due(12))
	for step := range 5 {
		require.Zero(t, send(r, 1, step, 100).Every)
	}
	fx := send(r, 1, 5, 100)
	require.Equal(t, uint32(4), fx.Every)
	require.Equal(t, uint32(4), fx.Control[0].Every, "the others are told")
	require.True(t, r.Due(8))
	require.False(t, r.Due(9))
	require.Zero(t, send(r, 1, 6, 100).Every, "as long as a step sends as much, nothing changes")

	o.Rank = 1
	other := New(o, State{}, 0, []uint32{0})
	told := fx.Control[0]
	fx, err := other.Control(told)
	require.NoError(t, err)
	require.Equal(t, uint32(4), fx.Every)
	told.Every = 6
	fx, err = other.Control(told)
	require.NoError(t, err)
	require.Zero(t, fx.Every, "the least counts")
	require.True(t, other.Due(4))
}

// pair is two machines and what travels between them, in order and without loss.
type pair struct {
	t    *testing.T
	from *Rank
	to   *Rank
	got  []Message // delivered to to
	wire []func()
}

func (p *pair) do(of *Rank, fx Effects) {
	other := p.to
	if of == p.to {
		other = p.from
		p.got = append(p.got, fx.Deliver...)
		for _, m := range fx.Deliver {
			p.wire = append(p.wire, func() { p.do(p.to, p.to.Read(Edge{m.Header.Src, m.Header.Chan})) })
		}
	}
	for _, m := range fx.Publish {
		p.wire = append(p.wire, func() { p.call(other)(other.Receive(m)) })
	}
	for _, c := range fx.Control {
		p.wire = append(p.wire, func() { p.call(other)(other.Control(c)) })
	}
}

func (p *pair) call(of *Rank) func(Effects, error) {
	return func(fx Effects, err error) {
		require.NoError(p.t, err)
		p.do(of, fx)
	}
}

func (p *pair) run() {
	for len(p.wire) > 0 {
		next := p.wire[0]
		p.wire = p.wire[1:]
		next()
	}
}

// A sender that waits for nobody may be thousands of messages ahead of one that is lost. What cannot be kept is asked for
// again, without a timer, and comes in order.
func TestFarAhead(t *testing.T) {
	const n = 3*KeptMax + 7
	p := &pair{t: t, from: New(Options{Rank: 0, World: 2, Incarnation: 1}, State{}, 0, nil), to: New(Options{Rank: 1, World: 2, Incarnation: 1}, State{}, 0, nil)}
	p.from.Start()
	p.to.Start()
	for i := range n {
		fx := send(p.from, 1, i, 1)
		if i > 0 { // the first is lost
			p.do(p.from, fx)
		}
	}
	p.run()
	require.Empty(t, p.got)
	require.LessOrEqual(t, len(p.to.in[Edge{0, 0}].kept), KeptMax)
	p.do(p.to, p.to.Lost(0))
	p.run()
	require.Len(t, p.got, n)
	for i, m := range p.got {
		require.Equal(t, uint64(i), m.Header.Log)
	}
}

// An old request that asks for what is freed on one channel is still answered on the others.
func TestOldRequestIsAnsweredInPart(t *testing.T) {
	r := New(Options{Rank: 0, World: 2, Incarnation: 1}, State{}, 0, []uint32{0})
	r.Start()
	for _, ch := range []uint16{1, 2, 3} {
		for step := range uint32(4) {
			r.Send(Message{Header: messages.Header{Dst: 1, Chan: ch, Step: step}, Payload: []byte{1}})
		}
	}
	r.Saved(2)
	fx, err := r.Control(Control{Kind: Durable, Src: 1, Dst: 0, Incarnation: 1, Steps: []uint32{2}})
	require.NoError(t, err)
	require.True(t, fx.Committed)
	fx, err = r.Control(Control{Kind: Need, Src: 1, Dst: 0, Incarnation: 1, Numbers: map[uint16]uint64{1: 1, 2: 3, 3: 0}})
	require.NoError(t, err)
	require.Len(t, fx.Control, 1)
	require.Equal(t, TooOld, fx.Control[0].Kind)
	require.Equal(t, map[uint16]uint64{1: 2, 3: 2}, fx.Control[0].Numbers)
	require.Len(t, fx.Publish, 1)
	require.Equal(t, uint16(2), fx.Publish[0].Header.Chan)
}

// A message that takes longer than a rank waits is asked for, and comes twice. The rank then waits longer, to a bound, and
// less long again when nothing comes twice.
func TestPatienceFollowsTheLink(t *testing.T) {
	r := New(Options{Rank: 0, World: 2, Incarnation: 1, Patience: 10, PatienceMax: 1000}, State{}, 0, nil)
	r.Start()
	e, next := Edge{1, 0}, uint64(0)
	arrive := func(log uint64) {
		_, err := r.Receive(Message{Header: messages.Header{Src: 1, Log: log}, Payload: []byte{byte(log)}})
		require.NoError(t, err)
		if log == next {
			next++
			r.Read(e)
		}
	}
	// waits is how long it takes until the rank asks.
	waits := func(now int64) int64 {
		r.Tick(now, []Edge{e})
		for at := now + 1; ; at++ {
			if len(r.Tick(at, []Edge{e}).Control) > 0 {
				return at - now
			}
		}
	}
	for _, want := range []int64{10, 20, 40, 40, 40} {
		require.Equal(t, want, waits(int64(1000*next)))
		arrive(next)
		arrive(next - 1) // the answer to the request
	}
	require.Equal(t, uint64(5), r.Stats().Asked)
	require.Equal(t, uint64(5), r.Stats().Hasty)
	arrive(next - 1) // no request was before it
	require.Equal(t, uint64(5), r.Stats().Hasty)
	for range calmMax {
		arrive(next)
	}
	require.Equal(t, int64(20), waits(1_000_000))
}
