package natslink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/messages"
	"phalanx/transport"
)

// flow is a sender, a receiver and what is between them, without threads and without NATS.
type flow struct {
	out     outflow
	in      inflow
	pool    pool
	wire    []frame
	credits []totals
	inbox   map[uint16][]transport.Message // delivered, not consumed
	sent    map[uint16][][]byte            // not delivered yet
	largest int
}

type frame struct {
	h       messages.Header
	payload []byte
}

func newFlow(lim limits) *flow {
	return &flow{
		out:   outflow{lim: lim, edges: map[int]*outEdge{}},
		in:    inflow{lim: lim, edges: map[int]*inEdge{}, owned: map[ownedKey]owned{}},
		pool:  pool{bytesMax: 1 << 20},
		inbox: map[uint16][]transport.Message{}, sent: map[uint16][][]byte{},
	}
}

func (f *flow) push(t require.TestingT, ch uint16, payload []byte) {
	require.NoError(t, f.out.push(messages.Header{Dst: 1, Chan: ch, Chunks: 1}, payload))
	f.sent[ch] = append(f.sent[ch], payload)
	f.largest = max(f.largest, len(payload))
}

// publish moves one piece onto the wire.
func (f *flow) publish() bool {
	p, ok := f.out.next(transport.Identity{}, 0)
	if ok {
		p.header.Seal(p.payload)
		f.wire = append(f.wire, frame{p.header, p.payload})
	}
	return ok
}

// arrive takes one piece off the wire.
func (f *flow) arrive(t require.TestingT) bool {
	if len(f.wire) == 0 {
		return false
	}
	h, payload := f.wire[0].h, f.wire[0].payload
	f.wire = f.wire[1:]
	e := f.in.edge(0, 0)
	require.NoError(t, e.expect(&h))
	if h.Kind == messages.Hello {
		e.due, e.full = true, true
	} else {
		c := e.channel(h.Chan)
		part, err := place(c.part, &h, payload, &f.pool)
		require.NoError(t, err)
		if f.in.count(e, c, part, &h) {
			require.Equal(t, len(f.sent[h.Chan][0]), len(part.buf))
			require.Equal(t, string(f.sent[h.Chan][0]), string(part.buf))
			f.sent[h.Chan] = f.sent[h.Chan][1:]
			f.inbox[h.Chan] = append(f.inbox[h.Chan], transport.Message{Header: part.header, Payload: part.buf})
		}
	}
	f.credits = append(f.credits, e.owe()...)
	return true
}

// consume takes the i-th message of a channel from its owner.
func (f *flow) consume(t require.TestingT, ch uint16, i int) {
	m := f.inbox[ch][i]
	f.inbox[ch] = append(f.inbox[ch][:i:i], f.inbox[ch][i+1:]...)
	buf, e, err := f.in.consumed(&m.Header)
	require.NoError(t, err)
	if buf != nil {
		f.pool.put(buf)
	}
	f.credits = append(f.credits, e.owe()...)
}

// answer brings one credit back.
func (f *flow) answer(t require.TestingT) bool {
	if len(f.credits) == 0 {
		return false
	}
	body := f.credits[0].encode()
	f.credits = f.credits[1:]
	got, err := decodeTotals(body)
	require.NoError(t, err)
	require.NoError(t, f.out.credited(1, got))
	return true
}

// check: windows are kept, and what waits for an owner fits into a window and one message.
func (f *flow) check(t require.TestingT) {
	for _, e := range f.out.order {
		require.LessOrEqual(t, e.transit.out-e.transit.back, e.transit.size)
		for _, c := range e.order {
			require.LessOrEqual(t, c.window.out-c.window.back, c.window.size)
		}
	}
	for _, box := range f.inbox {
		bytes := uint64(0)
		for _, m := range box {
			bytes += uint64(len(m.Payload))
		}
		require.LessOrEqual(t, bytes, f.in.lim.channel+uint64(f.largest))
	}
}

// run lets everything happen that can.
func (f *flow) run(t require.TestingT) {
	for f.publish() || f.arrive(t) || f.answer(t) {
		f.check(t)
	}
}

func drawLimits(t *rapid.T) limits {
	piece := rapid.IntRange(40, 200).Draw(t, "piece")
	least := int(2 * cost(piece))
	return limits{
		piece:   piece,
		edge:    uint64(rapid.IntRange(least, 6*least).Draw(t, "edge")),
		channel: uint64(rapid.IntRange(least, 6*least).Draw(t, "channel")),
	}
}

// TestFlowNeverStandsStill: whatever the sizes (messages larger than a window too), and in whichever order pieces,
// credits and owners move, a standstill means that an owner has a message to take, and in the end all have arrived.
// No probe is needed as long as no credit is lost.
func TestFlowNeverStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFlow(drawLimits(t))
		big := int(3 * f.in.lim.channel)
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			switch rapid.IntRange(0, 4).Draw(t, "move") {
			case 0:
				payload := make([]byte, rapid.IntRange(0, big).Draw(t, "size"))
				for i := range payload {
					payload[i] = byte(i*7 + len(payload))
				}
				f.push(t, uint16(rapid.IntRange(0, 2).Draw(t, "chan")), payload)
			case 1:
				f.publish()
			case 2:
				f.arrive(t)
			case 3:
				f.answer(t)
			case 4:
				ch := uint16(rapid.IntRange(0, 2).Draw(t, "owner"))
				if n := len(f.inbox[ch]); n > 0 {
					f.consume(t, ch, rapid.IntRange(0, n-1).Draw(t, "which"))
				}
			}
			f.check(t)
		}
		// An owner that waits on one channel gets its messages whatever the others do.
		for _, ch := range []uint16{2, 0, 1} {
			for f.run(t); len(f.sent[ch])+len(f.inbox[ch]) > 0; f.run(t) {
				require.NotEmpty(t, f.inbox[ch], "channel %d stands still with %d messages unsent", ch, len(f.sent[ch]))
				f.consume(t, ch, 0)
			}
		}
		require.Empty(t, f.in.owned)
	})
}

// TestProbesHealLostCredits loses credits at random; ticks bring everything through.
func TestProbesHealLostCredits(t *testing.T) {
	const lossy = 20 // ticks in which credits are lost
	rapid.Check(t, func(t *rapid.T) {
		f := newFlow(drawLimits(t))
		for range rapid.IntRange(1, 4).Draw(t, "messages") {
			f.push(t, 0, make([]byte, rapid.IntRange(0, int(2*f.in.lim.channel)).Draw(t, "size")))
		}
		for ticks, last, moved := 0, uint64(0), 0; len(f.sent[0])+len(f.inbox[0]) > 0; ticks++ {
			if n := f.out.edge(1).pieces; n > last {
				last, moved = n, ticks
			}
			require.LessOrEqual(t, ticks, max(lossy, moved)+3, "stands still")
			for f.publish() || f.arrive(t) {
			}
			for len(f.inbox[0]) > 0 {
				f.consume(t, 0, 0)
			}
			for len(f.credits) > 0 {
				if ticks < lossy && rapid.Bool().Draw(t, "lost") {
					f.credits = f.credits[1:]
				} else {
					f.answer(t)
				}
			}
			require.Empty(t, f.out.tick(1<<30))
		}
	})
}

// TestQuietEdgeIsAskedOnce: an edge that was answered in full costs nothing more.
func TestQuietEdgeIsAskedOnce(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	f.push(t, 0, []byte("x"))
	f.run(t)
	f.out.tick(5) // moved since the last tick
	require.Zero(t, f.out.asks.len())
	f.out.tick(5)
	require.Equal(t, 1, f.out.asks.len())
	f.run(t)
	f.out.tick(5)
	f.out.tick(5)
	require.Zero(t, f.out.asks.len())
}

func TestSilentPeerIsReportedOnce(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	f.push(t, 0, []byte("x"))
	reports := 0
	for range 20 {
		for f.publish() {
		}
		reports += len(f.out.tick(5))
	}
	require.Equal(t, 1, reports)
}

// TestAnswersEndSilence: a peer that answers before the limit is never reported, however often it is asked.
func TestAnswersEndSilence(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	f.push(t, 0, []byte("x"))
	for f.publish() {
	}
	for range 10 {
		for range 4 {
			require.Empty(t, f.out.tick(5))
			for f.publish() {
			}
		}
		require.NoError(t, f.out.credited(1, totals{}))
	}
}

// TestOldCreditChangesNothing: credits are totals, so an older one that comes late takes nothing back.
func TestOldCreditChangesNothing(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	f.push(t, 0, []byte("x"))
	f.publish()
	e := f.out.edges[1]
	require.NoError(t, f.out.credited(1, totals{pieces: 1, bytes: 129, chans: []chanTotal{{0, 129}}}))
	require.NoError(t, f.out.credited(1, totals{chans: []chanTotal{{0, 0}}}))
	require.Equal(t, []uint64{1, 129, 129}, []uint64{e.acked, e.transit.back, e.chans[0].window.back})
}

func TestImpossibleCreditIsRefused(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	require.ErrorContains(t, f.out.credited(1, totals{}), "credit from rank 1, nothing was sent there")
	f.push(t, 0, []byte("x"))
	f.publish()
	require.ErrorContains(t, f.out.credited(1, totals{pieces: 2}), "credit for 2 pieces, 1 were sent")
	require.ErrorContains(t, f.out.credited(1, totals{pieces: 1, bytes: 130}), "credit for 130 bytes, 129 were sent")
	require.ErrorContains(t, f.out.credited(1, totals{chans: []chanTotal{{3, 1}}}), "credit on channel 0x0003")
	require.ErrorContains(t, f.out.credited(1, totals{chans: []chanTotal{{0, 130}}}), "credit for 130 bytes, 129 were sent")

	_, err := decodeTotals(make([]byte, 5))
	require.ErrorContains(t, err, "found 5 bytes, expected at least 18")
	_, err = decodeTotals(make([]byte, 19))
	require.ErrorContains(t, err, "found 1 bytes for 0 channels, expected 0")
}

func TestConsumedTwiceIsMisuse(t *testing.T) {
	f := newFlow(limits{piece: 100, edge: 10_000, channel: 10_000})
	f.push(t, 0, nil)
	f.run(t)
	m := f.inbox[0][0]
	f.consume(t, 0, 0)
	_, _, err := f.in.consumed(&m.Header)
	require.ErrorIs(t, err, transport.ErrMisuse)
}

// TestPiecesMustFitTogether: numbers, names and sizes of pieces that no correct sender makes.
func TestPiecesMustFitTogether(t *testing.T) {
	base := messages.Header{Kind: messages.Data, Dst: 1, Step: 3, Chunks: 3}
	at := func(chunk, chunks uint16, change func(*messages.Header)) *messages.Header {
		h := base
		h.Chunk, h.Chunks = chunk, chunks
		if change != nil {
			change(&h)
		}
		return &h
	}
	p := &pool{}
	send := func(part *partial, h *messages.Header, n int) (*partial, error) {
		payload := make([]byte, n)
		h.Seal(payload)
		return place(part, h, payload, p)
	}
	for name, c := range map[string]struct {
		h    *messages.Header
		n    int
		want string
	}{
		"repeated": {at(0, 3, nil), 10, "found chunk 0 of 3, expected chunk 1"},
		"skipped":  {at(2, 3, nil), 10, "found chunk 2 of 3, expected chunk 1"},
		"short":    {at(1, 3, nil), 9, "found chunk 1 of 3 with 9 bytes, expected 10 bytes"},
		"long":     {at(1, 3, nil), 11, "found chunk 1 of 3 with 11 bytes, expected 10 bytes"},
		"no last":  {at(1, 2, nil), 0, "found chunk 1 of 2 with 0 bytes, expected 10 bytes"},
		"stranger": {at(1, 3, func(h *messages.Header) { h.Step = 4 }), 10, "a piece of data 0→1 chan 0x0000 step 4"},
	} {
		t.Run(name, func(t *testing.T) {
			part, err := send(nil, at(0, 3, nil), 10)
			require.NoError(t, err)
			_, err = send(part, c.h, c.n)
			require.ErrorIs(t, err, transport.ErrDisorder)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := send(nil, at(1, 3, nil), 10)
	require.ErrorContains(t, err, "found chunk 1 of 3, expected chunk 0")
	_, err = send(nil, at(0, 0, nil), 10)
	require.ErrorContains(t, err, "found chunk 0 of 0, expected chunk 0")
}

func TestPoolIsBoundedAndFits(t *testing.T) {
	p := &pool{bytesMax: 1000}
	p.put(make([]byte, 400))
	p.put(make([]byte, 500))
	require.Equal(t, 400, cap(p.get(300)), "the smallest that fits")
	require.Equal(t, 200, cap(p.get(200)), "none that is more than twice as large")
	p.put(make([]byte, 600))
	require.Equal(t, 600, p.bytes, "the oldest was forgotten")
	require.Len(t, p.free, 1)
	p.put(make([]byte, 5000))
	require.Empty(t, p.free)
}

func TestLimitsFollowTheServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			PieceBytes:  rapid.IntRange(pieceBytesMin, pieceBytesMax).Draw(t, "piece"),
			CreditBytes: rapid.IntRange(2*(pieceBytesMin+messages.HeaderSize), 64<<20).Draw(t, "credit"),
		}
		ranks := rapid.IntRange(0, 300).Draw(t, "ranks")
		payload := rapid.Int64Range(1, 8<<20).Draw(t, "max_payload")
		pending := rapid.Int64Range(1<<20, 1<<30).Draw(t, "max_pending")
		l, err := o.limitsFor(ranks, payload, pending)
		if err != nil {
			require.ErrorContains(t, err, "raise the server's limits")
			return
		}
		fan := int64(max(1, ranks-1))
		require.LessOrEqual(t, int64(l.edge)*fan, pending/2)
		require.LessOrEqual(t, int64(cost(l.piece)), payload)
		require.LessOrEqual(t, 2*cost(l.piece), l.edge)
		require.LessOrEqual(t, 2*cost(l.piece), l.channel)
		require.GreaterOrEqual(t, l.piece, pieceBytesMin)
	})
}

func TestTooLargeNamesTheSize(t *testing.T) {
	l := limits{piece: 1024}
	n, err := l.chunksFor(65535 * 1024)
	require.NoError(t, err)
	require.Equal(t, 65535, n)
	_, err = l.chunksFor(65535*1024 + 1)
	require.ErrorIs(t, err, transport.ErrTooLarge)
	require.ErrorContains(t, err, "found 67107841 bytes, expected at most 67107840 (65535 pieces of 1024)")
	l.piece = 256 << 10
	_, err = l.chunksFor(1 << 32)
	require.ErrorIs(t, err, transport.ErrTooLarge)
	for bytes, want := range map[int]int{0: 1, 1: 1, 256 << 10: 1, 256<<10 + 1: 2, 1 << 20: 4} {
		n, err := l.chunksFor(bytes)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
}
