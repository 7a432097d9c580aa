package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Restart is one restart, for those who look later.
type Restart struct {
	Worker int       `cbor:"1,keyasint"`
	Record Record    `cbor:"2,keyasint"` // of the new incarnation
	AtNs   int64     `cbor:"3,keyasint"` // when its record was taken
	At     time.Time `cbor:"-"`
}

const auditBytesMax = 64 << 20

func (p *Plane) auditStream() string { return "T" + p.opts.Run + "_EVT" }

func (p *Plane) auditConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: p.auditStream(), Subjects: []string{p.subject("evt.>")}, MaxBytes: auditBytesMax,
		Discard: jetstream.DiscardOld, Storage: jetstream.FileStorage, Replicas: p.opts.Replicas, Description: "phalanx run " + p.opts.Run}
}

// Note keeps a restart, once, however often it is told.
func (p *Plane) Note(ctx context.Context, r Restart) error {
	r.AtNs = r.Record.At.UnixNano()
	return p.note(ctx, fmt.Sprintf("%s.%d.%d", restarts, r.Worker, r.Record.Incarnation), encode(r))
}

// FalseAlarm keeps that an incarnation was suspected and gave a sign of life afterwards, once.
func (p *Plane) FalseAlarm(ctx context.Context, worker int, incarnation uint32) error {
	return p.note(ctx, fmt.Sprintf("%s.%d.%d", falseAlarms, worker, incarnation), nil)
}

// Subjects of the stream.
const (
	restarts    = "evt.restart"
	falseAlarms = "evt.false"
)

// note keeps one thing under one subject.
func (p *Plane) note(ctx context.Context, subject string, body []byte) error {
	return p.insist(ctx, "noting "+subject, func(ctx context.Context) error {
		_, err := p.js.Publish(ctx, p.subject(subject), body, jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithRetryAttempts(0))
		if refusedRevision(err) {
			return nil
		}
		return err
	})
}

// FalseAlarms counts them.
func (p *Plane) FalseAlarms(ctx context.Context) (n int, err error) {
	err = p.insist(ctx, "reading false alarms", func(ctx context.Context) error {
		s, err := p.js.Stream(ctx, p.auditStream())
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(p.subject(falseAlarms+".>")))
		if err == nil {
			n = len(info.State.Subjects)
		}
		return err
	})
	return n, err
}

// Restarts are all that were kept, in the order of the stream.
func (p *Plane) Restarts(ctx context.Context) (list []Restart, err error) {
	var first, last uint64
	err = p.insist(ctx, "reading restarts", func(ctx context.Context) error {
		s, err := p.js.Stream(ctx, p.auditStream())
		if err == nil {
			first, last = s.CachedInfo().State.FirstSeq, s.CachedInfo().State.LastSeq
		}
		return err
	})
	for n := max(first, 1); err == nil && n <= last; n++ {
		var r *Restart
		if r, err = p.restart(ctx, n); err == nil && r != nil {
			list = append(list, *r)
		}
	}
	return list, err
}

// restart reads one; nil: it is gone, or something else.
func (p *Plane) restart(ctx context.Context, n uint64) (r *Restart, err error) {
	err = p.insist(ctx, "reading restarts", func(ctx context.Context) error {
		s, err := p.handle(ctx, p.auditStream())
		if err != nil {
			return err
		}
		m, err := s.GetMsg(ctx, n)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		if !strings.HasPrefix(m.Subject, p.subject(restarts)) {
			return nil
		}
		r = &Restart{}
		if err := decode("a restart", m.Data, r); err != nil {
			return final{err}
		}
		r.At = time.Unix(0, r.AtNs)
		r.Record.At = r.At
		return nil
	})
	return r, err
}
