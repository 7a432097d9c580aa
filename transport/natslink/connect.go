package natslink

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"

	"phalanx/transport"
)

const (
	connectTimeout = 3 * time.Second
	pingInterval   = 2 * time.Second // a dead TCP peer is noticed after five of them, a loaded one is not suspected
	pingsMax       = 5
	flushTimeout   = 10 * time.Second // a write that takes longer has lost its peer

	// A healing link loses little with a connection and may have another server to go to: a suspicion is enough.
	pingHealing  = time.Second
	pingsHealing = 3
	flushHealing = 3 * time.Second
	connectAmong = time.Second // for one of several servers; the next may be awake

	reconnectWait = 50 * time.Millisecond
	awaitWait     = 200 * time.Millisecond // between first attempts of a network that waits for its server
)

// dial makes a connection. The first attempt fails or succeeds within the timeout; later NATS tries again for ever,
// and the link's keeper loses patience. Nothing is buffered meanwhile: a piece in such a buffer is neither sent nor lost.
func (n *Network) dial(name string, timeout time.Duration, more ...nats.Option) (*nats.Conn, error) {
	o := &n.opts
	opts := []nats.Option{
		nats.Name(name), nats.Timeout(timeout), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(pingsMax),
		nats.FlusherTimeout(flushTimeout), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait/5, reconnectWait/5),
		nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
	}
	if n.server != nil {
		opts = append(opts, nats.InProcessServer(n.server))
	}
	user, err := o.Options()
	if err != nil {
		return nil, fmt.Errorf("natslink: %w", err)
	}
	address := o.URL
	if n.server != nil {
		address = ""
	}
	c, err := nats.Connect(address, append(append(opts, user...), more...)...)
	if err != nil {
		return nil, n.explain(err)
	}
	return c, nil
}

// refusal says whether an error is of a server that is there and will say the same again.
func refusal(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrNkeysNotSupported)
}

// explain says what to do about a refused first connection.
func (n *Network) explain(err error) error {
	hint := "is the server running there, and is the URL right?"
	text := err.Error()
	switch {
	case refusal(err):
		hint = "look at the user in the URL, or the credentials or NKey file"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted), strings.Contains(text, "tls:"),
		strings.Contains(text, "x509:"), strings.Contains(text, "certificate"):
		hint = "look at the TLS files and at the name in the server's certificate"
	}
	return fmt.Errorf("natslink: cannot connect to the NATS server at %s: %w: %s", n.where, err, hint)
}

// connect makes one of a link's connections.
func (l *link) connect(which string) (*nats.Conn, error) {
	l.ended.Add(1)
	name := fmt.Sprintf("phalanx %s rank %d %s", l.net.opts.Run, l.rank, which)
	c, err := l.net.dial(name, l.net.connectTimeout(), l.handlers(which)...)
	if err != nil {
		l.ended.Done()
	}
	return c, err
}

// connectTimeout is how long a server may take to let us in.
func (n *Network) connectTimeout() time.Duration {
	if strings.Contains(n.opts.URL, ",") {
		return connectAmong
	}
	return connectTimeout
}

// handlers are the callbacks of a link's connection.
func (l *link) handlers(which string) []nats.Option {
	log := l.net.log.With(zap.Int("rank", l.rank), zap.String("connection", which))
	opts := []nats.Option{
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { l.asyncError(log, sub, err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if !l.gate.Closed() {
				log.Warn("connection lost, trying again", zap.Error(err))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			l.net.reconnects.Add(1)
			log.Warn("connection is back")
			l.checkPayload(c)
			l.back(false)
			signal(l.wake)
		}),
		nats.ClosedHandler(func(c *nats.Conn) {
			if !l.gate.Closed() {
				l.failLink(transport.ErrConnection, fmt.Errorf("the %s connection to %s is closed: %w", which, l.net.where, lastError(c)))
			}
			l.ended.Done()
		}),
	}
	if l.heals() {
		opts = append(opts, nats.PingInterval(pingHealing), nats.MaxPingsOutstanding(pingsHealing), nats.FlusherTimeout(flushHealing),
			nats.RetryOnFailedConnect(true), nats.ConnectHandler(func(*nats.Conn) { l.back(true) }))
	}
	return opts
}

// asyncError sorts what NATS reports beside the calls: refusals and drops fail the link, the troubles of a
// connection that is being made again do not.
func (l *link) asyncError(log *zap.Logger, sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		l.countDrops(sub)
		if l.heals() {
			return // the gap will be seen
		}
		l.failLink(transport.ErrSlowConsumer, fmt.Errorf("subscription %s: %w", sub.Subject, err))
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrMaxPayload):
		l.failLink(transport.ErrConnection, err)
	default:
		if !l.gate.Closed() {
			log.Warn("connection", zap.Error(err))
		}
	}
}

// checkPayload refuses a server that takes less than the pieces made for the one before.
func (l *link) checkPayload(c *nats.Conn) {
	l.mu.Lock()
	need := int64(cost(l.out.lim.piece))
	l.mu.Unlock()
	if found := c.MaxPayload(); found < need {
		l.failLink(transport.ErrConnection, fmt.Errorf("found max_payload %d after a reconnect, expected at least %d as before", found, need))
	}
}

// countDrops asks the subscription how many pieces it has dropped.
func (l *link) countDrops(sub *nats.Subscription) uint64 {
	if n, err := sub.Dropped(); err == nil && n > 0 {
		l.drops.Store(uint64(n))
	}
	return l.drops.Load()
}

func lastError(c *nats.Conn) error {
	if err := c.LastError(); err != nil {
		return err
	}
	return nats.ErrConnectionClosed
}

// redact leaves users and passwords out of an address that will be printed.
func redact(address string) string {
	parts := strings.Split(address, ",")
	for i, p := range parts {
		p = strings.TrimSpace(p)
		if !strings.Contains(p, "://") {
			p = "nats://" + p
		}
		u, err := url.Parse(p)
		if err != nil {
			parts[i] = "(an address that cannot be parsed)"
			continue
		}
		u.User = nil
		parts[i] = u.String()
	}
	return strings.Join(parts, ",")
}
