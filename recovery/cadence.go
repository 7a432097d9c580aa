package recovery

import "math/bits"

// Ranks go back to a step that all of them have kept, so they must keep the same ones: multiples of Options.Every. A rank
// whose log outgrows LogMax cannot help itself by a snapshot that the others do not take. It finds the largest divisor of
// Every with which the log would fit and says so; everybody goes by the least that anybody has said. Multiples of the
// old number are multiples of the new one, so nobody has to agree on when.

// Due reports whether the beginning of a step is to be kept.
func (r *Rank) Due(step uint32) bool { return r.every > 0 && step%r.every == 0 }

// adapt shortens the distance between snapshots if the log is too large, as seen while a message of a step is sent. It
// never waits: with a distance of 1, or while disks fail, the log grows.
func (r *Rank) adapt(step uint32, fx *Effects) {
	if r.o.LogMax <= 0 || r.bytes <= r.o.LogMax || r.every <= 1 || step < r.gen {
		return
	}
	perStep := r.bytes / (int64(step-r.gen) + 1)
	d := r.every
	for d > 1 && (r.every%d != 0 || int64(d+1)*perStep > r.o.LogMax) {
		d--
	}
	if d < r.every {
		r.keepEvery(d, fx)
		r.gossip(fx)
	}
}

// keepEvery takes a shorter distance, one's own or another's.
func (r *Rank) keepEvery(steps uint32, fx *Effects) {
	if steps > 0 && steps < r.every {
		r.every, fx.Every = steps, steps
	}
}

// LeastRound is which of some steps to leave out when a disk is slower than snapshots come: the one that the fewest powers of
// two divide, of several the first. Every rank that leaves some out then keeps the same ones, whatever its disk; if each left out
// its oldest, eight ranks with disks of two and a half steps would have five steps in common in two thousand.
func LeastRound(steps []uint32) int {
	least := 0
	for i, s := range steps {
		if bits.TrailingZeros32(s) < bits.TrailingZeros32(steps[least]) {
			least = i
		}
	}
	return least
}
