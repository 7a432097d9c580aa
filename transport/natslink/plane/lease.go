package plane

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Lease is the leadership of the supervisors, as long as it is renewed.
type Lease struct {
	Holder string
	Term   uint64 // ascending from leader to leader
	Since  time.Time

	revision Revision
}

// claim is what lies in the bucket. The nonce tells our own writes from each other, should an answer be lost.
type claim struct {
	Holder string `cbor:"1,keyasint"`
	Nonce  string `cbor:"2,keyasint"`
}

const leaseKey = "leader"

// Acquire takes the lease if nobody has it; ErrConflict: somebody has.
func (p *Plane) Acquire(ctx context.Context, holder string) (Lease, error) {
	rev, err := p.lease.swap(ctx, leaseKey, encode(claim{holder, nats.NewInbox()}), 0)
	if err != nil {
		return Lease{}, err
	}
	return Lease{Holder: holder, Term: uint64(rev), Since: time.Now(), revision: rev}, nil
}

// Renew makes the lease last for its whole time from now; ErrConflict: it is lost.
func (p *Plane) Renew(ctx context.Context, l Lease) (Lease, error) {
	rev, err := p.lease.swap(ctx, leaseKey, encode(claim{l.Holder, nats.NewInbox()}), l.revision)
	if err != nil {
		return l, err
	}
	l.revision = rev
	return l, nil
}

// Release gives the lease back before its time.
func (p *Plane) Release(ctx context.Context, l Lease) error {
	return p.lease.drop(ctx, leaseKey, l.revision)
}

// Leader says who has the lease; ErrMissing: nobody.
func (p *Plane) Leader(ctx context.Context) (string, error) {
	e, err := p.lease.get(ctx, leaseKey)
	if err != nil {
		return "", err
	}
	var c claim
	return c.Holder, decode("a lease", e.value, &c)
}
