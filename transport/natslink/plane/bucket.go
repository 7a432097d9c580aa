package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Revision is the version of a key; 0: there is none.
type Revision uint64

// bucket is a key-value bucket. It is a stream laid out as NATS lays out its own, so that its tools show it, but
// read at the leader: a replica may be behind what a writer has just been told.
type bucket struct {
	p    *Plane
	name string
}

// entry is the newest value of a key.
type entry struct {
	value    []byte
	revision Revision
	at       time.Time // by the server's clock
}

func (b bucket) stream() string            { return "KV_" + b.name }
func (b bucket) subject(key string) string { return "$KV." + b.name + "." + key }

func (b bucket) config(ttl time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: b.stream(), Subjects: []string{b.subject(">")}, MaxMsgsPerSubject: 1, MaxAge: ttl,
		MaxBytes: bucketBytesMax, Storage: jetstream.FileStorage, Replicas: b.p.opts.Replicas, AllowRollup: true,
		Discard: jetstream.DiscardNew, Description: "phalanx run " + b.p.opts.Run}
}

// get reads a key; ErrMissing: there is none.
func (b bucket) get(ctx context.Context, key string) (e entry, err error) {
	err = b.p.insist(ctx, "reading "+key, func(ctx context.Context) error {
		e, err = b.getOnce(ctx, key)
		return err
	})
	return e, err
}

func (b bucket) getOnce(ctx context.Context, key string) (entry, error) {
	s, err := b.p.handle(ctx, b.stream())
	if err != nil {
		return entry{}, err
	}
	m, err := s.GetLastMsgForSubject(ctx, b.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return entry{}, final{fmt.Errorf("plane: %s: %w", key, ErrMissing)}
	case err != nil:
		return entry{}, err
	}
	return entry{value: m.Data, revision: Revision(m.Sequence), at: m.Time}, nil
}

// swap writes a key if its revision is still after; ErrConflict: it is not.
func (b bucket) swap(ctx context.Context, key string, value []byte, after Revision) (rev Revision, err error) {
	err = b.p.insist(ctx, "writing "+key, func(ctx context.Context) error {
		rev, err = b.swapOnce(ctx, key, value, after)
		return err
	})
	return rev, err
}

// swapOnce tries once. A refusal may be the echo of an earlier try whose answer was lost.
func (b bucket) swapOnce(ctx context.Context, key string, value []byte, after Revision) (Revision, error) {
	ack, err := b.p.js.Publish(ctx, b.subject(key), value, jetstream.WithExpectLastSequencePerSubject(uint64(after)), jetstream.WithRetryAttempts(0))
	if err == nil {
		b.tell(key, Revision(ack.Sequence))
		return Revision(ack.Sequence), nil
	}
	if !refusedRevision(err) {
		return 0, err
	}
	e, err := b.getOnce(ctx, key)
	switch {
	case errors.Is(err, ErrMissing) && after == 0:
		return 0, errors.New("a key was refused and is not there") // it has just expired: try again
	case err != nil && !errors.Is(err, ErrMissing):
		return 0, err
	case err == nil && e.revision > after && bytes.Equal(e.value, value):
		b.tell(key, e.revision)
		return e.revision, nil
	}
	return 0, final{fmt.Errorf("plane: %s: %w: found revision %d, expected %d", key, ErrConflict, e.revision, after)}
}

// refusedRevision reports whether the server has found another revision than expected.
func refusedRevision(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// drop removes a revision of a key and leaves no marker; it is no error if it is gone.
func (b bucket) drop(ctx context.Context, key string, rev Revision) error {
	return b.p.insist(ctx, "removing "+key, func(ctx context.Context) error {
		s, err := b.p.handle(ctx, b.stream())
		if err != nil {
			return err
		}
		if _, err := s.GetMsg(ctx, uint64(rev)); errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		return s.DeleteMsg(ctx, uint64(rev))
	})
}

// tell lets those who watch a key know that there is something to read.
func (b bucket) tell(key string, rev Revision) {
	_ = b.p.conn.Publish(b.nudge(key), strconv.AppendUint(nil, uint64(rev), 10)) // they look for themselves too
}

func (b bucket) nudge(key string) string { return b.p.subject("key." + b.name + "." + key) }

// pollEvery is how often a watcher looks for itself.
const pollEvery = time.Second

// watch calls f with the value of a key and with every later one that it sees, until the context ends. Values that are
// replaced quickly may be left out. The zero entry says that there is none.
func (b bucket) watch(ctx context.Context, key string, f func(entry)) error {
	changed := make(chan struct{}, 1)
	sub, err := b.p.conn.Subscribe(b.nudge(key), func(*nats.Msg) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return b.p.closed(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	seen, first := Revision(0), true
	for {
		e, err := b.get(ctx, key)
		if err != nil && !errors.Is(err, ErrMissing) {
			return err
		}
		if first || e.revision != seen {
			seen, first = e.revision, false
			f(e)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.p.ended:
			return b.p.closed(nats.ErrConnectionClosed)
		case <-changed:
		case <-poll.C:
		}
	}
}
