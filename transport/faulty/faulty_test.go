package faulty

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"phalanx/messages"
	"phalanx/transport"
	"phalanx/transport/direct"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is two ranks over a faulty direct network, and what the second has seen.
type pair struct {
	net   *Network
	out   transport.Link
	mu    sync.Mutex
	seen  []string
	fails []error
}

func (p *pair) receive(m transport.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, fmt.Sprintf("%d:%s", m.Header.Seq, m.Payload))
}

func (p *pair) received() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func newPair(t *testing.T, plan Plan) *pair {
	p := &pair{net: Wrap(direct.New(transport.Identity{}), plan)}
	_, err := p.net.Open(1, transport.Handler{
		Receive: p.receive,
		Fail:    func(err error) { p.fails = append(p.fails, err) },
	})
	require.NoError(t, err)
	p.out, err = p.net.Open(0, transport.Handler{Receive: func(transport.Message) {}, Fail: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	return p
}

func (p *pair) send(t *testing.T, seq int, payload string) {
	require.NoError(t, p.out.Send(transport.Message{Header: messages.Header{Dst: 1, Seq: uint64(seq)}, Payload: []byte(payload)}))
}

func script(faults ...Fault) Plan {
	return Plan{Seed: 1, Choose: func(_ messages.Header, nth int) Fault { return faults[nth] }}
}

func TestDropAndDuplicate(t *testing.T) {
	p := newPair(t, script(None, Drop, Duplicate, None))
	for i, s := range []string{"a", "b", "c", "d"} {
		p.send(t, i, s)
	}
	require.Equal(t, []string{"0:a", "2:c", "2:c", "3:d"}, p.received())
	require.Empty(t, p.fails)
	require.EqualValues(t, 1, p.net.Count(Drop))
	require.EqualValues(t, 2, p.net.Count(None))
	require.NoError(t, p.net.Close())
	require.Equal(t, "faulty direct", p.net.Name())
}

func TestDelayLetsOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, script(Delay, None, Delay, Delay, Delay))
		for i, s := range []string{"a", "b", "c", "d", "e"} {
			p.send(t, i, s)
		}
		require.Equal(t, []string{"1:b", "0:a", "3:d", "2:c"}, p.received())
		time.Sleep(2 * waitDefault)
		synctest.Wait()
		require.Equal(t, []string{"1:b", "0:a", "3:d", "2:c", "4:e"}, p.received())
		require.NoError(t, p.net.Close())
	})
}

func TestControlPasses(t *testing.T) {
	p := newPair(t, Plan{Seed: 1, Drop: 1})
	said := ""
	_, err := p.net.Open(2, transport.Handler{Receive: func(transport.Message) {}, Fail: func(err error) { t.Error(err) },
		Control: func(src int, body []byte) { said = fmt.Sprintf("%d:%s", src, body) }})
	require.NoError(t, err)
	require.NoError(t, p.out.(transport.Controller).Control(2, []byte("word")))
	require.Equal(t, "0:word", said)
}

// TestCorruptIsCaughtByTheChecksum: whichever bit flips, the receiver hears of damage and never of wrong bytes.
func TestCorruptIsCaughtByTheChecksum(t *testing.T) {
	p := newPair(t, Plan{Seed: 7, Corrupt: 1})
	for i := range 200 {
		p.send(t, i, "payload")
	}
	require.Empty(t, p.received())
	require.Len(t, p.fails, 200)
	for _, err := range p.fails {
		require.ErrorIs(t, err, transport.ErrCorrupt)
		require.ErrorContains(t, err, "rank 0→1 channel 0x0000: a piece is damaged")
	}
	require.NoError(t, p.net.Close())
}

func TestThePlanFollowsTheSeed(t *testing.T) {
	run := func(seed uint64) []string {
		p := newPair(t, Plan{Seed: seed, Drop: 0.2, Duplicate: 0.2, Corrupt: 0.1})
		for i := range 100 {
			p.send(t, i, "x")
		}
		require.NoError(t, p.net.Close())
		return p.received()
	}
	require.Equal(t, run(1), run(1))
	require.NotEqual(t, run(1), run(2))
}
