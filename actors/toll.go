package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/messages"
	"phalanx/recovery"
)

// toll is what the deaths of a rank have cost. A rank has recovered when it sends what no earlier life has sent, or is done.
type toll struct {
	since    time.Time // of the first death that it has not recovered from; zero: none
	cause    string
	at       string
	most     map[recovery.Edge]uint64 // messages sent, in the life that sent most
	given    map[recovery.Edge]uint64 // messages given to groups, in the life that was given most
	replayed int                      // messages given to groups again since then
	dropped  int                      // messages that came again since then
	// In a run of several processes nothing is known of the lives before: a rank has recovered when it sends what a peer
	// lacks, once all peers have told what they have.
	apart bool
	told  map[int]bool
}

func (t *toll) newLife() {
	if t.most == nil {
		t.most, t.given = map[recovery.Edge]uint64{}, map[recovery.Edge]uint64{}
	}
	t.told = map[int]bool{}
}

// death notes a death.
func (t *toll) death(now time.Time, m died) {
	if t.since.IsZero() {
		t.since, t.replayed, t.dropped = now, 0, 0
	}
	t.cause, t.at = m.err.Cause.Error(), m.site()
}

// sent notes how many messages of an edge have been sent in this life; true if that ends a recovery.
func (t *toll) sent(e recovery.Edge, n uint64) bool {
	if n <= t.most[e] {
		return false
	}
	t.most[e] = n
	return !t.since.IsZero()
}

// delivered notes a message for a group; 1 if an earlier life was given it too.
func (t *toll) delivered(m recovery.Message) uint64 {
	e := recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}
	if m.Header.Log < t.given[e] || t.apart && !t.since.IsZero() {
		t.replayed++
		return 1
	}
	t.given[e] = m.Header.Log + 1
	return 0
}

// heard notes a control message.
func (t *toll) heard(c recovery.Control) {
	if c.Kind == recovery.Need {
		t.told[c.Src] = true
	}
}

// sends says whether a message that is sent ends a recovery. published says that its receiver lacks it; peers is the
// number of the others.
func (t *toll) sends(e recovery.Edge, n uint64, published bool, peers int) bool {
	if t.apart {
		return published && !t.since.IsZero() && len(t.told) == peers
	}
	return t.sent(e, n)
}

// recovered tells that a rank is where it was when it died, if it had died.
func (k *keeper) recovered(ctx actor.Context) {
	t := &k.toll
	if t.since.IsZero() {
		return
	}
	k.tellRecovered(ctx, messages.Restarted{Rank: k.rank, Incarnation: k.inc, Cause: t.cause, At: t.at,
		Replayed: t.replayed, Dropped: t.dropped, Ms: float64(time.Since(t.since)) / float64(time.Millisecond)})
	t.since = time.Time{}
}
