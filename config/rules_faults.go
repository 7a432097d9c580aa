package config

import (
	"fmt"
	"strings"
)

// faults holds the rules of failures on purpose.
func (c *checker) faults() {
	if len(c.s.Faults) > MaxFaults {
		c.fail("faults", fmt.Sprintf("has %d entries, expected at most %d", len(c.s.Faults), MaxFaults))
		return
	}
	for i, f := range c.s.Faults {
		at := fmt.Sprintf("faults.%d.at", i)
		if world := c.s.Sizes().World(); f.At.Rank >= world {
			c.fail(at+".rank", fmt.Sprintf("found %d, expected a rank from 0 to %d", f.At.Rank, world-1), "dist.world_size")
		}
		snapshots := strings.HasSuffix(f.At.Hook, "-snapshot") || f.At.Hook == "before-commit" || f.At.Hook == "after-restart"
		if snapshots && c.s.Recovery.SnapshotEvery == 0 {
			c.fail(at+".hook", fmt.Sprintf("no rank comes by %s without recovery.snapshot_every; set it above 0, or use before-send, after-send or before-apply", f.At.Hook), "recovery.snapshot_every")
		}
	}
	r := &c.s.Recovery
	if r.SnapshotEvery > 0 && r.SnapshotEvery > c.s.Train.TrainIters {
		c.note("recovery.snapshot_every is above train_iters: a rank that is started again begins at the first step")
	}
}
