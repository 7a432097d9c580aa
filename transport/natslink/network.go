package natslink

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"phalanx/transport"
)

// Stats is transport.Stats.
type Stats = transport.Stats

// Network is the ranks of this process at one NATS server. It is a transport.Network and a transport.Counter.
type Network struct {
	opts   Options
	id     transport.Identity
	log    *zap.Logger
	server *server.Server // embedded, or nil
	where  string         // for errors

	maxPayload, maxPending int64

	mu     sync.Mutex
	links  map[int]*link
	closed bool

	messages, pieces, bytes, credits, reconnects, controls, fenced, corrupt, foreign atomic.Uint64
}

// Start reaches the server, or starts the embedded one, and reads its limits. The context bounds the start only.
func Start(ctx context.Context, o Options) (*Network, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	n := &Network{opts: o, id: o.identity(), log: o.Logger, where: redact(o.URL), maxPending: int64(o.MaxPending), links: map[int]*link{}}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("natslink: not started: %w", err)
	}
	if o.Embedded {
		if n.server, err = startServer(&o); err != nil {
			return nil, err
		}
		n.where = "this process"
		n.maxPending = int64(ServerMaxPending(o.Ranks, o.CreditBytes))
	}
	if err := n.greet(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// greet makes one connection to learn whether the server takes us, and which pieces.
func (n *Network) greet(ctx context.Context) error {
	timeout := n.connectTimeout()
	if d, ok := ctx.Deadline(); ok {
		timeout = max(time.Millisecond, min(timeout, time.Until(d)))
	}
	c, err := n.dial("phalanx start", timeout)
	for err != nil && n.opts.Await && ctx.Err() == nil && !refusal(err) {
		n.log.Warn("waiting for a server", zap.Error(err))
		select {
		case <-ctx.Done():
		case <-time.After(awaitWait):
			c, err = n.dial("phalanx start", n.connectTimeout())
		}
	}
	if err != nil {
		return err
	}
	n.maxPayload = c.MaxPayload()
	c.Close()
	if n.maxPayload < payloadBytesMin {
		return fmt.Errorf("natslink: found max_payload %d at %s, expected at least %d: raise max_payload of the server", n.maxPayload, n.where, payloadBytesMin)
	}
	_, err = n.opts.limitsFor(n.opts.Ranks, n.maxPayload, n.maxPending)
	return err
}

// Name is "nats".
func (n *Network) Name() string { return "nats" }

// URL is where other processes reach the server; empty when it does not listen.
func (n *Network) URL() string {
	if n.server == nil {
		return n.opts.URL
	}
	if n.opts.URL == "" {
		return ""
	}
	return n.server.ClientURL()
}

// Stats counts what the links of this process did.
func (n *Network) Stats() Stats {
	s := Stats{Messages: n.messages.Load(), Pieces: n.pieces.Load(), Bytes: n.bytes.Load(), Credits: n.credits.Load(), Reconnects: n.reconnects.Load(),
		Controls: n.controls.Load(), Fenced: n.fenced.Load(), Corrupt: n.corrupt.Load(), Foreign: n.foreign.Load()}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		s.SlowConsumers += l.countDrops(l.pieces)
		l.mu.Lock()
		s.Lost += l.out.lost
		s.Dropped += l.out.gone
		l.mu.Unlock()
	}
	return s
}

// Trouble names the ranks whose connections are lost and not back yet. It implements transport.Troubled.
func (n *Network) Trouble() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ranks []int
	limit := "trying again"
	for _, l := range n.links {
		if !l.heals() {
			limit = fmt.Sprintf("trying again for at most %v", l.outage)
		}
		if !l.connected() {
			ranks = append(ranks, l.rank)
		}
	}
	if len(ranks) == 0 || n.closed {
		return nil
	}
	slices.Sort(ranks)
	return &transport.LinkError{Kind: transport.ErrConnection, Src: transport.Unknown, Dst: ranks[0], Chan: transport.Unknown,
		Cause: fmt.Errorf("no server at %s for ranks %v; %s", n.where, ranks, limit)}
}

func (n *Network) pieceSent(p *piece) {
	n.pieces.Add(1)
	n.bytes.Add(uint64(len(p.payload)))
	if p.last {
		n.messages.Add(1)
	}
}

func (n *Network) dataSubject(dst, src int) string {
	return fmt.Sprintf("t.%s.d.%d.%d", n.opts.Run, dst, src)
}
func (n *Network) controlSubject(dst int) string { return fmt.Sprintf("t.%s.c.%d", n.opts.Run, dst) }

func (n *Network) rankMax() int {
	if n.opts.Ranks > 0 {
		return n.opts.Ranks - 1
	}
	return 0xffff
}

// Open connects a rank. When it returns, what others send to the rank arrives.
func (n *Network) Open(rank int, h transport.Handler) (transport.Link, error) {
	switch {
	case rank < 0 || rank > n.rankMax():
		return nil, fmt.Errorf("natslink: found rank %d, expected 0 to %d", rank, n.rankMax())
	case h.Receive == nil || h.Fail == nil:
		return nil, fmt.Errorf("natslink: rank %d: expected both Receive and Fail in the handler", rank)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, &transport.LinkError{Kind: transport.ErrClosed, Src: rank, Dst: transport.Unknown, Chan: transport.Unknown}
	}
	if _, ok := n.links[rank]; ok {
		return nil, fmt.Errorf("natslink: rank %d is open already; each rank opens one link", rank)
	}
	lim, err := n.opts.limitsFor(max(n.opts.Ranks, len(n.links)+1), n.maxPayload, n.maxPending)
	if err != nil {
		return nil, err
	}
	l := newLink(n, rank, h, lim)
	if err := l.open(); err != nil {
		l.close()
		return nil, err
	}
	n.links[rank] = l
	for _, other := range n.links {
		other.setLimits(lim)
	}
	return l, nil
}

// open makes the two connections, subscribes, and waits for the server to know it.
func (l *link) open() (err error) {
	if l.data, err = l.connect("data"); err != nil {
		return err
	}
	if l.ctrl, err = l.connect("control"); err != nil {
		return err
	}
	if l.pieces, err = l.data.Subscribe(fmt.Sprintf("t.%s.d.%d.*", l.net.opts.Run, l.rank), l.receive); err != nil {
		return fmt.Errorf("natslink: rank %d cannot subscribe: %w", l.rank, err)
	}
	control, err := l.ctrl.Subscribe(l.net.controlSubject(l.rank), func(m *nats.Msg) { l.heard(m.Data) })
	if err != nil {
		return fmt.Errorf("natslink: rank %d cannot subscribe: %w", l.rank, err)
	}
	l.ended.Add(2)
	l.pieces.SetClosedHandler(func(string) { l.ended.Done() })
	control.SetClosedHandler(func(string) { l.ended.Done() })
	if err := l.roundTrip(l.data); err != nil {
		return fmt.Errorf("natslink: rank %d: the server does not confirm the subscription for data: %w", l.rank, err)
	}
	if err := l.roundTrip(l.ctrl); err != nil {
		return fmt.Errorf("natslink: rank %d: the server does not confirm the subscription for control: %w", l.rank, err)
	}
	l.mu.Lock()
	l.opened, l.absent = true, !l.connected()
	l.mu.Unlock()
	l.loops.Add(2)
	go l.write()
	go l.keep()
	return nil
}

// roundTrip returns when the server has done all that was asked of it before. FlushTimeout would do, but it takes its
// timer from a pool of the whole process, which a test on virtual time must not share with others.
func (l *link) roundTrip(c *nats.Conn) error {
	if l.heals() && !c.IsConnected() {
		return nil // it will be
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	err := c.FlushWithContext(ctx)
	if l.heals() && !c.IsConnected() {
		return nil
	}
	return err
}

// Close ends all links, then the embedded server, and returns when both are gone.
func (n *Network) Close() error {
	n.mu.Lock()
	n.closed = true
	links := make([]*link, 0, len(n.links))
	for _, l := range n.links {
		links = append(links, l)
	}
	n.mu.Unlock()
	slices.SortFunc(links, func(a, b *link) int { return a.rank - b.rank })
	for _, l := range links {
		l.close()
	}
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
	return nil
}
