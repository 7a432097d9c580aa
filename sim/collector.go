package sim

import (
	"bytes"
	"maps"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"phalanx/messages"
	"phalanx/recovery"
)

// reports is the channel of what a rank tells the collector. Only its stage program tells anything, so it is one sequence.
const reports = 0xff00

// report is what a rank tells: of a step, or at the end the checksum of its whole state.
type report struct {
	Done  *messages.StepDone
	Final string
}

// collector takes the reports of all ranks, never dies, and takes part in the commit: its durable steps are those before
// which it has every report.
type collector struct {
	c        *cluster
	m        *recovery.Rank
	told     []map[int]report // by rank and step
	complete uint32           // steps of which every rank has told
	count    []messages.Sums  // by rank: what came, added up
	mail     []recovery.Message
	handing  bool
}

func newCollector(c *cluster) *collector {
	k := &collector{c: c, count: make([]messages.Sums, len(c.nodes))}
	for range c.nodes {
		k.told = append(k.told, map[int]report{})
	}
	k.m = recovery.New(c.options(c.collector(), 1), recovery.State{}, 0, []uint32{0})
	c.after(c.dice.below(startMax, askStart, c.collector(), c.collector()), func() {
		k.do(k.m.Start())
		k.tick()
	})
	return k
}

// options are a machine's.
func (c *cluster) options(self int, inc uint32) recovery.Options {
	return recovery.Options{Rank: self, World: c.collector() + 1, Incarnation: inc, Collector: c.collector(), Every: uint32(c.o.Every), LogMax: c.o.LogMax,
		Window: 16, Patience: patience, PatienceMax: 16 * patience, Planted: c.o.Planted}
}

func (k *collector) receive(m recovery.Message) {
	fx, err := k.m.Receive(m)
	if err != nil {
		k.c.fail(&broken{I3, err})
		return
	}
	k.do(fx)
}

func (k *collector) control(m recovery.Control) {
	fx, err := k.m.Control(m)
	if err != nil {
		k.c.fail(&broken{I4, err})
		return
	}
	k.do(fx)
}

func (k *collector) lost(other int) { k.do(k.m.Lost(other)) }

// tick asks those who have not told what is next.
func (k *collector) tick() {
	k.c.after(tickEvery, func() {
		if !k.c.f.Silent && k.c.o.Shell != NeverAsk {
			k.do(k.m.Tick(k.c.now, k.waiting()))
		}
		k.tick()
	})
}

func (k *collector) waiting() []recovery.Edge {
	var list []recovery.Edge
	for rank, told := range k.told {
		if len(told) <= k.c.job.Steps() {
			list = append(list, recovery.Edge{Peer: uint16(rank), Chan: reports})
		}
	}
	return list
}

func (k *collector) do(fx recovery.Effects) {
	k.c.carry(k.c.collector(), &fx)
	k.mail = append(k.mail, fx.Deliver...)
	if k.handing {
		return
	}
	k.handing = true
	for i := 0; i < len(k.mail); i++ {
		m := k.mail[i]
		k.take(m.Header, m.Payload)
		k.do(k.m.Read(recovery.Edge{Peer: m.Header.Src, Chan: m.Header.Chan}))
	}
	k.mail, k.handing = k.mail[:0], false
}

// take notes a report. The machine gives each once and in order.
func (k *collector) take(h messages.Header, payload []byte) {
	var r report
	if err := cbor.Unmarshal(payload, &r); err != nil {
		k.c.fail(breaks(I3, "a report of rank %d cannot be read: %w", h.Src, err))
		return
	}
	rank, step := int(h.Src), int(h.Step)
	if step != len(k.told[rank]) && k.c.o.Shell != DoubleCount {
		k.c.fail(breaks(I2, "rank %d tells of step %d, expected %d", rank, step, len(k.told[rank])))
		return
	}
	k.told[rank][step] = r
	if r.Done != nil {
		k.count[rank].Add(r.Done.Sums)
	}
	k.advance()
}

// advance says which steps are complete.
func (k *collector) advance() {
	least := k.c.job.Steps() + 1
	for _, told := range k.told {
		least = min(least, len(told))
	}
	for k.complete < uint32(min(least, k.c.job.Steps())) {
		k.complete++
		k.c.durable.note(k.c, k.c.collector(), k.complete)
		k.do(k.m.Saved(k.complete))
	}
	if least > k.c.job.Steps() {
		k.do(k.m.Finish())
	}
}

// same says whether two reports, or parts of them, have the same bytes. A figure that is not a number is as good as any.
func same(got, want any) bool { return bytes.Equal(messages.CBOR(got), messages.CBOR(want)) }

// compare checks that everything was told, once, and is what it should be.
func (k *collector) compare(want *outcome) error {
	for rank, told := range k.told {
		for _, step := range slices.Sorted(maps.Keys(want.told[rank])) {
			if got, right := told[step], want.told[rank][step]; !same(got, right) {
				return breaks(I1, "rank %d tells of step %d %s, without faults %s", rank, step, got, right)
			}
		}
		if got, right := k.count[rank], sumOf(want.told[rank]); !same(got, right) {
			return breaks(I1, "rank %d told %+v in all, without faults %+v", rank, got, right)
		}
	}
	return nil
}

// sumOf adds up what a rank has told, step by step.
func sumOf(told map[int]report) (all messages.Sums) {
	for _, step := range slices.Sorted(maps.Keys(told)) {
		if done := told[step].Done; done != nil {
			all.Add(done.Sums)
		}
	}
	return all
}

// String is one line.
func (r report) String() string {
	if r.Done == nil {
		return "the state " + r.Final
	}
	return r.Done.String()
}
