package recovery

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
