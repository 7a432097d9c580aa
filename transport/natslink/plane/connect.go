package plane

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/zap"
)

const (
	connectTimeout = 3 * time.Second
	pingInterval   = time.Second // a dead TCP peer is noticed after three of them
	pingsMax       = 3
	flushTimeout   = 5 * time.Second
	reconnectWait  = 50 * time.Millisecond
)

// dial makes the connection, or leaves NATS trying to for ever. Nothing is buffered meanwhile: an old heartbeat is worse
// than none.
func (p *Plane) dial() (*nats.Conn, error) {
	o := &p.opts
	opts := []nats.Option{
		nats.Name(fmt.Sprintf("phalanx %s %s", o.Run, o.Name)), nats.Timeout(connectTimeout), nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsMax), nats.FlusherTimeout(flushTimeout), nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait/5, reconnectWait/5), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { p.log.Warn("control connection", zap.Error(err)) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if !p.closing.Load() {
				p.log.Warn("control connection lost, trying again", zap.Error(err))
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			p.log.Info("control connection is back", zap.String("server", c.ConnectedUrlRedacted()))
		}),
		nats.ClosedHandler(func(*nats.Conn) { close(p.ended) }),
	}
	more, err := o.Options()
	if err != nil {
		return nil, fmt.Errorf("plane: %w", err)
	}
	c, err := nats.Connect(o.URL, append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("plane: cannot connect to the NATS servers: %w: look at the URL, the user and the TLS files", err)
	}
	return c, nil
}
