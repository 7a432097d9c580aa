package supervise

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"phalanx/transport/natslink/plane"
)

// Of a lease's time: it is renewed three times, and not trusted in its last fifth, by the clock of this process, which
// begins before the server's does.
const (
	renewals    = 3
	trustTenths = 8
	asksALease  = 6 // how often a follower looks whether the leader's time is over
	releaseTime = time.Second
)

// lead takes the lease whenever it is free, and keeps it as long as it can be renewed.
func (s *Supervisor) lead(ctx context.Context) {
	ttl := s.p.LeaseTTL()
	for ctx.Err() == nil {
		asked := time.Now()
		l, err := s.p.Acquire(ctx, s.o.Name)
		if err == nil {
			s.reign(ctx, l, asked, ttl)
			continue
		}
		if !errors.Is(err, plane.ErrConflict) {
			s.until(ctx, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(ttl / asksALease):
		}
	}
}

// reign is one term. since is when the lease was asked for: the server counts from later on.
func (s *Supervisor) reign(ctx context.Context, l plane.Lease, since time.Time, ttl time.Duration) {
	trust := func() int64 { return s.at(since.Add(ttl * trustTenths / 10)) }
	term, until := l.Term, trust()
	s.tell(ctx, input{urgent: true, tell: func(now int64) {
		s.m.Lead(term, now, until)
		s.event(Event{Kind: Leading})
	}})
	for {
		select {
		case <-ctx.Done():
			s.release(l)
			return
		case <-time.After(time.Until(since.Add(ttl / renewals))):
		}
		asked := time.Now()
		try, cancel := context.WithDeadline(ctx, since.Add(ttl*trustTenths/10))
		next, err := s.p.Renew(try, l)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the lease is lost", zap.Error(err))
			s.tell(ctx, input{tell: func(int64) {
				s.m.Follow()
				s.event(Event{Kind: Following})
			}})
			return
		}
		if err == nil {
			l, since = next, asked
			until := trust()
			s.tell(ctx, input{tell: func(now int64) { s.m.Lead(term, now, until) }})
		}
	}
}

// release gives the lease back, so that the next leader need not wait; it is no matter if that fails.
func (s *Supervisor) release(l plane.Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := s.p.Release(ctx, l); err != nil {
		s.log.Debug("the lease was not given back", zap.Error(err))
	}
}
