package plane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// The ways in which a call ends without success, besides its context.
var (
	ErrClosed   = errors.New("the control plane is closed")
	ErrConflict = errors.New("somebody else has written since")
	ErrMissing  = errors.New("there is no such key")
	ErrFenced   = errors.New("a later life of this worker exists")
)

const (
	tryTimeout = 2 * time.Second // an answer that takes longer is lost
	pauseMin   = 20 * time.Millisecond
	pauseMax   = 500 * time.Millisecond
	quietFor   = 5 * time.Second // before a call that does not succeed is told, and told again after ten times that
)

// final is a refusal that trying again does not change.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// insist calls try until it succeeds or is refused for good. The error at the end of the context says why it never did.
func (p *Plane) insist(ctx context.Context, what string, try func(ctx context.Context) error) error {
	began, tell := time.Now(), quietFor
	for pause := pauseMin; ; pause = min(2*pause, pauseMax) {
		once, cancel := context.WithTimeout(ctx, tryTimeout)
		err := try(once)
		cancel()
		var end final
		switch {
		case err == nil:
			return nil
		case errors.As(err, &end):
			return end.error
		case p.conn.IsClosed():
			return p.closed(err)
		}
		if since := time.Since(began); since > tell {
			p.log.Warn("waiting for the control plane", zap.String("for", what), zap.Duration("since", since), zap.Error(err))
			tell = since + 10*quietFor
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("plane: %s: %w: %w", what, ctx.Err(), err)
		case <-p.ended:
			return p.closed(err)
		case <-time.After(pause):
		}
		if ctx.Err() == nil && lost(err) {
			p.remake(ctx)
		}
	}
}

// closed is the error after the connection has been closed: by Close, or by NATS for a reason.
func (p *Plane) closed(err error) error {
	if why := p.conn.LastError(); why != nil && !p.closing.Load() {
		err = why
	}
	return fmt.Errorf("plane: %w: %w", ErrClosed, err)
}

// lost reports whether a bucket is not where it was: a single server has come back without its files.
func lost(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}

// remake makes buckets once; whoever called tries again anyway.
func (p *Plane) remake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if err := p.make(ctx); err != nil {
		p.log.Debug("buckets", zap.Error(err))
	}
}
