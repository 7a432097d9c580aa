package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// faults holds the rules of failures on purpose.
func (c *checker) faults() {
	if len(c.s.Faults) > MaxFaults {
		c.fail("faults", fmt.Sprintf("has %d entries, expected at most %d", len(c.s.Faults), MaxFaults))
		return
	}
	for i := range c.s.Faults {
		c.fault(&c.s.Faults[i], fmt.Sprintf("faults.%d", i))
	}
	r := &c.s.Recovery
	if r.SnapshotEvery > 0 && r.SnapshotEvery > c.s.Train.TrainIters {
		c.note("recovery.snapshot_every is above train_iters: a rank that is started again begins at the first step")
	}
}

// fault holds the rules of one entry: what fails must be clear, and what is said must be of its kind.
func (c *checker) fault(f *Injected, at string) {
	switch {
	case f.OfServer():
		c.serverFault(f, at)
	case f.OfRank():
		c.rankFault(f, at)
	case f.OfLink() || f.During.Steps != nil:
		c.linkFault(f, at)
	case c.anyBad(at + "."): // what could not be read would be reported as missing
	default:
		c.fail(at, "says nothing that fails; expected at: {rank, hook} and an action, during and link with a share of messages, or server with at.step and an action")
	}
	c.window(f, at)
}

// anyBad reports whether a key with a prefix has a problem.
func (c *checker) anyBad(prefix string) bool {
	for key := range c.bad {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// rankFault: a rank fails at a hook.
func (c *checker) rankFault(f *Injected, at string) {
	switch {
	case f.OfLink():
		c.fail(at, "has a hook and faults of a link at once; write one entry for each")
	case f.At.Rank == nil:
		c.fail(at+".at.rank", fmt.Sprintf("required key is missing; expected a rank from 0 to %d", c.s.Sizes().World()-1), "dist.world_size")
	case f.Action == "" || f.Action == "pause":
		c.fail(at+".action", "a rank fails by "+oneOf(rankActions)+"; name one")
	case f.Action == "slow" && f.Ms == 0:
		c.fail(at+".ms", "slow needs the milliseconds that the rank sleeps; set ms above 0")
	case f.Action != "slow" && f.During.Steps != nil:
		c.fail(at+".during", "a rank fails once, at a step that at.step names; during goes with action slow, which then happens at every passage, and with link")
	}
	if f.Action != "slow" {
		c.notWith(f.Ms != 0, at+".ms", "goes with the actions slow and pause")
	}
	c.notWith(f.Seed != 0 && c.given(at+".seed"), at+".seed", "goes with faults of links; this one leaves nothing to chance")
	if world := c.s.Sizes().World(); f.At.Rank != nil && *f.At.Rank >= world {
		c.fail(at+".at.rank", fmt.Sprintf("found %d, expected a rank from 0 to %d", *f.At.Rank, world-1), "dist.world_size")
	}
	c.hook(f, at+".at")
	c.onlyProcesses(f, at)
}

// rankActions are the ways in which a rank fails.
var rankActions = []string{"panic", "kill", "hang", "slow", "exit", "enospc", "eio"}

// hooksText says what a hook may be.
var hooksText = "one of " + strings.Join(hookNames, ", ") + ", or a pass of the program as layer.1.forward or mtp.2.backward"

// hook holds the rules of the point at which a rank fails: that it is one, and that the rank comes by.
func (c *checker) hook(f *Injected, at string) {
	hook := f.At.Hook
	point, ok := ParsePoint(hook)
	switch {
	case ok:
		c.point(point, f.At.Rank, at)
	case hook == "":
		c.fail(at+".hook", "required key is missing; expected "+hooksText)
	case !slices.Contains(hookNames, hook):
		message := fmt.Sprintf("found %s, expected %s", show(hook), hooksText)
		if best, _ := nearest(hook, hookNames); best != "" {
			message += "; did you mean " + best + "?"
		}
		c.fail(at+".hook", message)
	case ofSnapshots(hook) && c.s.Recovery.SnapshotEvery == 0:
		c.fail(at+".hook", fmt.Sprintf("no rank comes by %s without recovery.snapshot_every; set it above 0, or use before-send, after-send or before-apply", hook), "recovery.snapshot_every")
	}
	if f.At.Step != nil && *f.At.Step > c.s.Train.TrainIters {
		c.fail(at+".step", fmt.Sprintf("%d is beyond train_iters %d", *f.At.Step, c.s.Train.TrainIters), "train.train_iters")
	}
	if n := c.s.NumMicrobatches(); f.At.Microbatch != nil && !hasMicrobatch(hook) && c.ok(at+".hook") {
		c.fail(at+".microbatch", hook+" is not passed within a microbatch; remove microbatch")
	} else if f.At.Microbatch != nil && *f.At.Microbatch >= n {
		c.fail(at+".microbatch", fmt.Sprintf("found %d, expected a microbatch from 0 to %d", *f.At.Microbatch, n-1), globalBatchKey, microBatchKey)
	}
}

// point holds the rules of a layer's or depth's pass: that there is such a part, and that the rank has it.
func (c *checker) point(p Point, rank *int, at string) {
	if key, text := c.s.Model.noPoint(p); text != "" {
		c.fail(at+".hook", text, key)
		return
	}
	if rank == nil || !c.ok(at+".rank", pipelineKey) || *rank >= c.s.Sizes().World() {
		return
	}
	if text := c.s.elsewhere(p, *rank); text != "" {
		c.fail(at+".rank", text)
	}
}

// noPoint says that the model has no such part, and the key that says how many it has; "": it has.
func (m *Model) noPoint(p Point) (key, text string) {
	low, high, what := 0, m.NumLayers-1, "layer"
	key = numLayersKey
	if p.MTP {
		low, high, key, what = 1, m.MTPNumLayers, numDepthsKey, "depth"
	}
	switch {
	case high < low:
		return key, fmt.Sprintf("found %s, and the model has no MTP depth; set %s", p, numDepthsKey)
	case p.Index < low || p.Index > high:
		return key, fmt.Sprintf("found %s, expected a %s from %d to %d", p, what, low, high)
	}
	return key, ""
}

// elsewhere says that a part of the model is on another pipeline stage than a rank; "": it is not.
func (s *Scenario) elsewhere(p Point, rank int) string {
	l, fault := s.Model.pipelineLayout()
	if fault != nil {
		return ""
	}
	for j, chunk := range l.Chunks {
		parts := chunk.Layers
		if p.MTP {
			parts = chunk.Depths
		}
		if stage := s.Sizes().Coord(rank).PP; slices.Contains(parts, p.Index) && l.Rank(j) != stage {
			return fmt.Sprintf("rank %d is on pipeline stage %d and never comes by %s, which is on stage %d; name a rank of that stage", rank, stage, p, l.Rank(j))
		}
	}
	return ""
}

// CheckHook reports a hook that is a pass of a part which the model, or the rank, does not have.
func (s *Scenario) CheckHook(hook string, rank int) error {
	p, ok := ParsePoint(hook)
	if !ok {
		return nil
	}
	_, text := s.Model.noPoint(p)
	if text = cmp.Or(text, s.elsewhere(p, rank)); text != "" {
		return errors.New(text)
	}
	return nil
}

// linkFault: messages suffer.
func (c *checker) linkFault(f *Injected, at string) {
	if f.Drop+f.Duplicate+f.Reorder+f.Corrupt+f.Delay+f.Partition == 0 && !c.anyBad(at+".") {
		c.fail(at, "says nothing that happens to messages; expected one of drop, duplicate, reorder, corrupt, delay and partition above 0")
	}
	if sum := f.Drop + f.Duplicate + f.Reorder + f.Corrupt; sum >= 1 && !c.anyBad(at+".") {
		c.fail(at, fmt.Sprintf("drop, duplicate, reorder and corrupt come to %s, expected less than 1: a message meets one of them at most, and some must arrive unharmed", number(sum)))
	}
	c.notWith(f.Action != "", at+".action", "goes with at and with server; what happens to messages is said by drop, duplicate, reorder, corrupt, delay and partition")
	c.notWith(f.Ms != 0, at+".ms", "goes with the actions slow and pause; write delay or partition")
	c.notWith(f.At != Passage{}, at+".at", "goes with the hook of a rank or with a server; a link suffers during some steps")
	world := c.s.Sizes().World()
	for _, end := range []struct {
		name string
		rank *int
	}{{"from", f.Link.From}, {"to", f.Link.To}} {
		if end.rank != nil && *end.rank >= world {
			c.fail(at+".link."+end.name, fmt.Sprintf("found %d, expected a rank from 0 to %d", *end.rank, world-1), "dist.world_size")
		}
	}
	if f.Link.From != nil && f.Link.To != nil && *f.Link.From == *f.Link.To {
		c.fail(at+".link.to", fmt.Sprintf("found %d, which is from too; expected another rank: a rank sends itself nothing", *f.Link.To), at+".link.from")
	}
	if c.s.Recovery.SnapshotEvery == 0 {
		c.fail(at, "a message that is lost is asked for again by recovery alone; set recovery.snapshot_every above 0", "recovery.snapshot_every")
	}
	c.needsProcs(at, "within one process nothing asks again for what is lost")
}

// serverFault: a NATS server is killed or stopped.
func (c *checker) serverFault(f *Injected, at string) {
	servers := max(c.s.Transport.Servers, 1)
	switch {
	case !slices.Contains(serverNames(servers), f.Server):
		c.fail(at+".server", fmt.Sprintf("found %s, expected %s: transport.servers is %d", show(f.Server), oneOf(serverNames(servers)), servers), "transport.servers")
	case c.s.Transport.URL != "":
		c.fail(at+".server", "transport.url names a server of somebody else, which is not ours to stop; remove url", "transport.url")
	case f.At.Step == nil:
		c.fail(at+".at.step", "required key is missing; expected the step, as printed, before which the server fails")
	case *f.At.Step > c.s.Train.TrainIters:
		c.fail(at+".at.step", fmt.Sprintf("%d is beyond train_iters %d", *f.At.Step, c.s.Train.TrainIters), "train.train_iters")
	case f.Action != "kill" && f.Action != "pause":
		c.fail(at+".action", "a server fails by kill or pause; name one")
	case f.Action == "pause" && f.Ms == 0:
		c.fail(at+".ms", "pause needs the milliseconds that the server stands still; set ms above 0")
	}
	c.notWith(f.Action == "kill" && f.Ms != 0, at+".ms", "goes with the actions slow and pause")
	c.notWith(f.At.Rank != nil || f.At.Hook != "" || f.At.Microbatch != nil || f.At.Count != 0, at+".at", "takes step alone where a server fails")
	c.notWith(f.OfLink() || f.During.Steps != nil, at+".server", "is given beside faults of a link; write one entry for each")
	c.needsProcs(at+".server", "the servers of run --procs are what fails")
}

func serverNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("nats-%d", i+1))
	}
	return names
}

func (c *checker) window(f *Injected, at string) {
	if w := f.During.Steps; w != nil && (w[0] < 1 || w[1] < w[0] || w[1] > c.s.Train.TrainIters) {
		c.fail(at+".during.steps", fmt.Sprintf("found [%d, %d], expected [first, last] from 1 to train_iters %d", w[0], w[1], c.s.Train.TrainIters), "train.train_iters")
	}
}

// notWith refuses a key that says nothing here.
func (c *checker) notWith(set bool, key, message string) {
	if set {
		c.fail(key, message+"; remove it")
	}
}

// onlyProcesses are the actions and hooks of ranks that are processes.
func (c *checker) onlyProcesses(f *Injected, at string) {
	switch f.Action {
	case "kill", "exit":
		c.needsProcs(at+".action", f.Action+" ends a process, and in one process that is the whole run; use panic")
	case "hang":
		c.needsProcs(at+".action", "a rank that hangs is killed with its process, and in one process that is the whole run")
	case "enospc", "eio":
		c.needsProcs(at+".action", "snapshots are on a disk only there")
	}
	if f.At.Hook == MidSnapshot {
		c.needsProcs(at+".at.hook", "snapshots are on a disk only there")
	}
}

// needsProcs notes a key that needs ranks in processes of their own.
func (c *checker) needsProcs(key, why string) {
	if c.ok(key) {
		c.procs = append(c.procs, c.at(key).problem(key, "needs ranks in processes of their own (run --procs N): "+why))
	}
}

// processes holds the rules of keys that say how processes are watched.
func (c *checker) processes() {
	r, t := &c.s.Recovery, &c.s.Transport
	const pair = "found 2, expected 1 or 3: of two, neither has a majority when one is lost"
	if r.Supervisors == 2 {
		c.fail("recovery.supervisors", pair)
	}
	if t.Servers == 2 {
		c.fail("transport.servers", pair)
	}
	if t.Servers > 1 && t.URL != "" {
		c.fail("transport.servers", "url names servers of somebody else; remove servers, or url", "transport.url")
	}
	if t.Servers > 1 && t.Kind == "direct" {
		c.fail("transport.servers", "kind direct uses no server; remove servers, or use kind nats", "transport.kind")
	}
	if t.Servers > 1 {
		c.needsProcs("transport.servers", "one server inside the process cannot outlive it")
	}
	if r.Supervisors > 1 {
		c.needsProcs("recovery.supervisors", "in one process the supervisor dies with the ranks")
	}
	if r.Recording && r.SnapshotEvery == 0 {
		c.fail("recovery.recording", "goes with recovery.snapshot_every; set it above 0", "recovery.snapshot_every")
	}
	for _, k := range []struct {
		key string
		set bool
		why string
	}{
		{"recovery.snapshot_bytes", r.SnapshotBytes > 0, "logs of ranks that share one process have no budget"},
		{"recovery.log_bytes", r.LogBytes > 0, "logs of ranks that share one process have no budget"},
	} {
		if k.set && r.SnapshotEvery == 0 {
			c.fail(k.key, "goes with recovery.snapshot_every; set it above 0", "recovery.snapshot_every")
		} else if k.set {
			c.needsProcs(k.key, k.why)
		}
	}
}
