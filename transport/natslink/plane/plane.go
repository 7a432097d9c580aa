package plane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// Plane is one process's view of the control plane. All methods may be called from any goroutine.
type Plane struct {
	opts  Options
	log   *zap.Logger
	conn  *nats.Conn
	js    jetstream.JetStream
	state bucket
	lease bucket

	streams sync.Map // of jetstream.Stream by name
	closing atomic.Bool
	ended   chan struct{} // the connection is closed
}

// stateKeysMax bounds a bucket that somebody writes to without end.
const bucketBytesMax = 64 << 20

// Open connects and makes the buckets unless they exist, and waits for servers that are not there yet. It ends with the
// context, and when a server refuses for good.
func Open(ctx context.Context, o Options) (*Plane, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	p := &Plane{opts: o, log: o.Logger, ended: make(chan struct{})}
	if p.conn, err = p.dial(); err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(p.conn); err != nil {
		p.Close()
		return nil, fmt.Errorf("plane: %w", err)
	}
	p.state = bucket{p, "T" + o.Run + "_STATE"}
	p.lease = bucket{p, "T" + o.Run + "_LEASE"}
	if err := p.prepare(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close ends the connection. Calls that are under way end with ErrClosed.
func (p *Plane) Close() {
	p.closing.Store(true)
	p.conn.Close()
	<-p.ended
}

// Connected reports whether there is a connection at this moment. Who has none hears nothing.
func (p *Plane) Connected() bool { return p.conn.IsConnected() }

// LeaseTTL is how long a lease holds that is not renewed.
func (p *Plane) LeaseTTL() time.Duration { return p.opts.LeaseTTL }

// prepare makes buckets and streams.
func (p *Plane) prepare(ctx context.Context) error {
	var refused time.Time
	return p.insist(ctx, "the control plane's buckets", func(ctx context.Context) error {
		err := p.make(ctx)
		switch {
		case err == nil:
			return nil
		case !p.Connected() || !forGood(err):
			refused = time.Time{}
			return err
		case refused.IsZero():
			refused = time.Now()
		case time.Since(refused) > p.opts.patience:
			return final{fmt.Errorf("plane: the server at %s refuses: %w: it needs JetStream (nats-server -js), and %d server(s) for %d replica(s)",
				p.conn.ConnectedUrlRedacted(), err, p.opts.Replicas, p.opts.Replicas)}
		}
		return err
	})
}

// refusalPatience is how long a server may say that it has no JetStream: it says so too while it starts.
const refusalPatience = 5 * time.Second

// forGood reports whether an answer will stay as it is.
func forGood(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount, replicasNotSupported:
			return true
		}
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled)
}

// replicasNotSupported is the server's code for replicas without a cluster.
const replicasNotSupported jetstream.ErrorCode = 10074

// make makes what is missing. What exists stays as it is: a cluster that has just lost a server has better to do than to
// change its streams, and another process may know better how many replicas there are.
func (p *Plane) make(ctx context.Context) error {
	for _, c := range []jetstream.StreamConfig{p.state.config(0), p.lease.config(p.opts.LeaseTTL), p.auditConfig()} {
		_, err := p.js.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = p.js.CreateStream(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// Erase removes everything that the run has left with the servers.
func (p *Plane) Erase(ctx context.Context) error {
	for _, name := range []string{p.state.stream(), p.lease.stream(), p.auditStream()} {
		err := p.insist(ctx, "removing "+name, func(ctx context.Context) error {
			if err := p.js.DeleteStream(ctx, name); !errors.Is(err, jetstream.ErrStreamNotFound) {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// subject is t.<run>.<rest>.
func (p *Plane) subject(rest string) string { return "t." + p.opts.Run + "." + rest }

// handle is a stream to read from. It is a name and no more, so an old one is as good as a new one.
func (p *Plane) handle(ctx context.Context, name string) (jetstream.Stream, error) {
	if s, ok := p.streams.Load(name); ok {
		return s.(jetstream.Stream), nil
	}
	s, err := p.js.Stream(ctx, name)
	if err == nil {
		p.streams.Store(name, s)
	}
	return s, err
}
