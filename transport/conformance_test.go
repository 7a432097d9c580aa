package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/messages"
	"phalanx/tensor"
	"phalanx/transport"
	"phalanx/transport/direct"
	"phalanx/transport/natslink"
)

// The tests in this file hold for every network.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func overEveryNetwork(t *testing.T, f func(t *testing.T, n transport.Network)) {
	id := transport.Identity{Run: messages.RunHash("all"), Topology: 3, Build: 0xb111d, Incarnation: 2}
	t.Run("direct", func(t *testing.T) {
		n := direct.New(id)
		defer n.Close()
		f(t, n)
	})
	t.Run("nats", func(t *testing.T) {
		n, err := natslink.Start(context.Background(), natslink.Options{Embedded: true, Run: "all", Topology: 3, Build: 0xb111d, Incarnation: 2})
		require.NoError(t, err)
		defer n.Close()
		f(t, n)
	})
}

// mailbox is what an actor's mailbox is to a link: put never blocks.
type mailbox struct {
	mu    sync.Mutex
	some  sync.Cond
	items []transport.Message
}

func newMailbox() *mailbox {
	b := &mailbox{}
	b.some.L = &b.mu
	return b
}

func (b *mailbox) put(m transport.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, m)
	b.some.Signal()
}

func (b *mailbox) take() transport.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.items) == 0 {
		b.some.Wait()
	}
	m := b.items[0]
	b.items = b.items[1:]
	return m
}

const (
	ranks      = 4
	channels   = 3
	perChannel = 2
)

// noise is where payloads are cut from.
var noise = func() []byte {
	b := make([]byte, 8<<20)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}()

// fill makes the payload that message i of a channel must have, from its name alone.
func fill(src, dst, ch, i int) []byte {
	r := rand.New(rand.NewPCG(uint64(src<<16|dst), uint64(ch<<16|i)))
	size := [4]int{0, r.IntN(4 << 10), r.IntN(512 << 10), r.IntN(5<<20 + 1)}[r.IntN(4)]
	return bytes.Clone(noise[r.IntN(len(noise)-size):][:size])
}

func header(dst, ch, i int) messages.Header {
	return messages.Header{Dst: uint16(dst), Chan: uint16(ch << 8), Step: uint32(i), Op: 0x1406, Layer: messages.NoLayer,
		Seq: uint64(i), DType: tensor.U8, NDim: 1, Shape: [4]uint32{uint32(i)}}
}

// TestAllToAll sends random sizes from every rank to every rank, itself too, on several channels at once, and wants
// equal headers and bytes in order for each (source, channel).
func TestAllToAll(t *testing.T) {
	seed := maphash.MakeSeed()
	type key struct{ src, dst, ch, i int }
	want := map[key]uint64{}
	for k := (key{}); k.src < ranks; k.src++ {
		for k.dst = 0; k.dst < ranks; k.dst++ {
			for k.ch = 0; k.ch < channels; k.ch++ {
				for k.i = 0; k.i < perChannel; k.i++ {
					want[k] = maphash.Bytes(seed, fill(k.src, k.dst, k.ch, k.i))
				}
			}
		}
	}
	overEveryNetwork(t, func(t *testing.T, n transport.Network) {
		var links [ranks]transport.Link
		var boxes [ranks]*mailbox
		for r := range ranks {
			boxes[r] = newMailbox()
			var err error
			links[r], err = n.Open(r, transport.Handler{Receive: boxes[r].put, Fail: func(err error) { t.Error(err) }})
			require.NoError(t, err)
		}
		var wg sync.WaitGroup
		for src := range ranks {
			for ch := range channels {
				wg.Go(func() {
					for i := range perChannel {
						for dst := range ranks {
							if err := links[src].Send(transport.Message{Header: header(dst, ch, i), Payload: fill(src, dst, ch, i)}); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
		}
		for dst := range ranks {
			wg.Go(func() {
				next := map[[2]int]int{}
				for range ranks * channels * perChannel {
					m := boxes[dst].take()
					src, ch := int(m.Header.Src), int(m.Header.Chan>>8)
					i := next[[2]int{src, ch}]
					next[[2]int{src, ch}]++
					h := header(dst, ch, i)
					h.Kind, h.Src, h.Chunks, h.Len, h.Edge = messages.Data, uint16(src), 1, uint32(len(m.Payload)), m.Header.Edge
					h.Run, h.Topology, h.Build, h.Incarnation = messages.RunHash("all"), 3, 0xb111d, 2
					if m.Header.PayloadCRC != 0 { // the link has looked
						h.PayloadCRC = messages.Checksum(m.Payload)
					}
					if h != m.Header {
						t.Errorf("found %v, expected %v", m.Header.String(), h.String())
					}
					if maphash.Bytes(seed, m.Payload) != want[key{src, dst, ch, i}] {
						t.Errorf("%v: other bytes than were sent", m.Header.String())
					}
					links[dst].Consumed(m)
				}
			})
		}
		wg.Wait()
		s := n.(transport.Counter).Stats()
		require.EqualValues(t, ranks*ranks*channels*perChannel, s.Messages)
		require.Zero(t, s.SlowConsumers)
		require.GreaterOrEqual(t, s.Pieces, s.Messages)
	})
}

// TestPayloadsAreAligned: every element type may be seen in a received payload.
func TestPayloadsAreAligned(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, n transport.Network) {
		box := newMailbox()
		h := transport.Handler{Receive: box.put, Fail: func(err error) { t.Error(err) }}
		link, err := n.Open(0, h)
		require.NoError(t, err)
		for _, count := range []int{1, 3, 500, 5_000, 40_000, 100_000} {
			x := make([]float64, count)
			x[count-1] = float64(count)
			require.NoError(t, link.Send(transport.Message{Payload: tensor.Bytes(x)}))
			m := box.take()
			require.Equal(t, x, tensor.View[float64](m.Payload))
			link.Consumed(m)
		}
	})
}

// TestControlBodiesCross: in order between two ranks, each with its source, and to nobody who did not ask for them.
func TestControlBodiesCross(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, n transport.Network) {
		fail := func(err error) { t.Error(err) }
		said := make(chan string, 10)
		_, err := n.Open(1, transport.Handler{Receive: func(transport.Message) {}, Fail: fail,
			Control: func(src int, body []byte) { said <- fmt.Sprintf("%d:%s", src, body) }})
		require.NoError(t, err)
		link, err := n.Open(0, transport.Handler{Receive: func(transport.Message) {}, Fail: fail})
		require.NoError(t, err)
		c := link.(transport.Controller)
		require.NoError(t, c.Control(0, []byte("nobody listens")))
		for _, s := range []string{"a", "", "c"} {
			require.NoError(t, c.Control(1, []byte(s)))
		}
		require.Equal(t, []string{"0:a", "0:", "0:c"}, []string{<-said, <-said, <-said})
		require.EqualValues(t, 4, n.(transport.Counter).Stats().Controls)
		require.ErrorIs(t, c.Control(-1, nil), transport.ErrMisuse)
		require.NoError(t, n.Close())
		require.ErrorIs(t, c.Control(1, nil), transport.ErrClosed)
	})
}

// TestNothingIsReceivedAfterClose closes while messages are on the way.
func TestNothingIsReceivedAfterClose(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, n transport.Network) {
		var closed, late atomic.Bool
		h := transport.Handler{
			Receive: func(transport.Message) { late.CompareAndSwap(false, closed.Load()) },
			Fail:    func(error) { late.CompareAndSwap(false, closed.Load()) },
		}
		_, err := n.Open(1, h)
		require.NoError(t, err)
		link, err := n.Open(0, h)
		require.NoError(t, err)
		done := make(chan error)
		go func() {
			for {
				if err := link.Send(transport.Message{Header: messages.Header{Dst: 1}, Payload: make([]byte, 1000)}); err != nil {
					done <- err
					return
				}
			}
		}()
		for n.(transport.Counter).Stats().Messages < 100 {
			runtime.Gosched()
		}
		require.NoError(t, n.Close())
		closed.Store(true)
		require.ErrorIs(t, <-done, transport.ErrClosed)
		require.NoError(t, n.Close())
		require.False(t, late.Load())
		_, err = n.Open(2, h)
		require.ErrorIs(t, err, transport.ErrClosed)
	})
}

func TestMisuseIsRefused(t *testing.T) {
	overEveryNetwork(t, func(t *testing.T, n transport.Network) {
		h := transport.Handler{Receive: func(transport.Message) {}, Fail: func(err error) { t.Error(err) }}
		link, err := n.Open(1, h)
		require.NoError(t, err)
		_, err = n.Open(1, h)
		require.ErrorContains(t, err, "rank 1 is open already")
		_, err = n.Open(-1, h)
		require.ErrorContains(t, err, "found rank -1")
		_, err = n.Open(70000, h)
		require.ErrorContains(t, err, "found rank 70000")
		_, err = n.Open(2, transport.Handler{})
		require.ErrorContains(t, err, "expected both Receive and Fail")
		for what, bad := range map[string]messages.Header{
			"run": {Run: 1}, "topology": {Topology: 9}, "build": {Build: 7}, "incarnation": {Incarnation: 8}, "source": {Src: 2},
		} {
			err := link.Send(transport.Message{Header: bad})
			require.ErrorIs(t, err, transport.ErrForeign)
			require.ErrorContains(t, err, "found "+what)
		}
	})
}

func TestLinkErrorSaysWhoWhatAndWhatToDo(t *testing.T) {
	cause := errors.New("broken pipe")
	err := error(&transport.LinkError{Kind: transport.ErrLost, Src: 1, Dst: 2, Chan: 0x301, Found: "piece number 17", Expected: "16"})
	require.EqualError(t, err, "rank 1→2 channel 0x0301: a piece was lost: found piece number 17, expected 16; restart the run from its last checkpoint")
	err = fmt.Errorf("step 3: %w", &transport.LinkError{Kind: transport.ErrConnection, Src: transport.Unknown, Dst: 2, Chan: transport.Unknown, Cause: cause})
	require.EqualError(t, err, "step 3: rank 2: the connection is gone: broken pipe; look whether the NATS server runs, then restart the run from its last checkpoint")
	require.ErrorIs(t, err, transport.ErrConnection)
	require.ErrorIs(t, err, cause)
}

func TestGateWaitsForThoseInside(t *testing.T) {
	var g transport.Gate
	inside, leave, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go g.Do(func() { close(inside); <-leave })
	<-inside
	go func() { g.Close(); close(closed) }()
	for !g.Closed() {
		runtime.Gosched()
	}
	require.False(t, g.Do(func() { t.Error("inside a closed gate") }))
	select {
	case <-closed:
		t.Fatal("closed with somebody inside")
	default:
	}
	close(leave)
	<-closed
	require.False(t, g.Close())
}
