package sim

import (
	"fmt"

	"phalanx/config"
	"phalanx/data"
	"phalanx/model"
)

// ElementsMax bounds what all ranks of a simulated job hold together, in numbers: a schedule makes every rank anew for each
// of its lives.
const ElementsMax = 8 << 20

// ScenarioError is a scenario that cannot be simulated. Key is where the file says so.
type ScenarioError struct{ Key, Why string }

func (e *ScenarioError) Error() string { return e.Key + ": " + e.Why }

// Open is the job of a scenario file, with its own model, layout and data. Validation, checkpoints and expectations play
// no part. The errors are a *ScenarioError and those of packages data and model.
func Open(s config.Scenario) (*Job, error) {
	total := 0
	for rank := range s.Sizes().World() {
		m, err := model.MemoryOf(&s, rank)
		if err != nil {
			return nil, err
		}
		total += m.Elements()
	}
	if total > ElementsMax {
		return nil, &ScenarioError{"model", fmt.Sprintf("its ranks hold %d numbers together, and at most %d are simulated; make the model smaller, as with model.hidden_size=16 dataset.seq_length=16",
			total, ElementsMax)}
	}
	d, err := data.Open(&s)
	if err != nil {
		return nil, err
	}
	return NewJob(&s, d.Train)
}

// millisecond in virtual time.
const millisecond = 1000

// hangMax is how long a rank that hangs stands still: until it has long been replaced.
const hangMax = 101 * millisecond

// OptionsOf are the options that a scenario's faults and recovery keys ask for. Without faults a seed draws its own (Swarm).
// A millisecond of the file is one of virtual time.
func OptionsOf(s *config.Scenario) Options {
	o := Options{Every: s.Recovery.SnapshotEvery, Supervisors: s.Recovery.Supervisors}
	if len(s.Faults) == 0 {
		return o
	}
	o.Faults = &Faults{DelayMax: 200, DiskMax: 200, Losses: 10_000, Silent: true}
	for i := range s.Faults {
		o.add(&s.Faults[i])
	}
	return o
}

// add adds one fault of a file.
func (o *Options) add(f *config.Injected) {
	switch {
	case f.OfServer():
		o.Servers = append(o.Servers, *f.At.Step-1)
	case f.OfRank():
		o.addPassage(f)
	default:
		o.Windows = append(o.Windows, windowOf(f))
		o.Faults.Silent = false
	}
}

// kindsOf says what the actions of a file are here. A panic is the death of its process.
var kindsOf = map[string]Kind{"panic": Crash, "kill": Crash, "exit": Crash, "hang": Stop, "slow": Slow, "enospc": Full, "eio": Full}

func (o *Options) addPassage(f *config.Injected) {
	p := Passage{Rank: *f.At.Rank, Hook: f.At.Hook, Nth: f.At.Count, Kind: kindsOf[f.Action], Microbatch: f.At.Microbatch}
	if f.At.Step != nil {
		p.Step = *f.At.Step
	}
	if f.Action == "hang" {
		p.Lasts = hangMax
	} else if p.Kind == Slow {
		p.Lasts = int64(f.Ms * millisecond)
	}
	if steps := f.During.Steps; steps != nil {
		p.Step, p.Until = steps[0], steps[1]
	}
	o.Passages = append(o.Passages, p)
}

// Window is what happens to messages of one rank to another while the sender is in some steps.
type Window struct {
	From, To int // −1: every rank
	First    int // step, from 0
	Last     int // −1: the last of the run
	// Shares of the messages, of which each meets one at most.
	Drop, Duplicate, Corrupt, Reorder float64
	Delay                             int64 // a message waits up to so long, in virtual microseconds
	Partition                         int64 // nothing passes for so long after the first message
}

func windowOf(f *config.Injected) Window {
	w := Window{From: -1, To: -1, Last: -1, Drop: f.Drop, Duplicate: f.Duplicate, Corrupt: f.Corrupt, Reorder: f.Reorder,
		Delay: int64(f.Delay * millisecond), Partition: int64(f.Partition * millisecond)}
	if f.Link.From != nil {
		w.From = *f.Link.From
	}
	if f.Link.To != nil {
		w.To = *f.Link.To
	}
	if steps := f.During.Steps; steps != nil {
		w.First, w.Last = steps[0]-1, steps[1]-1
	}
	return w
}

// has reports whether a message of a step from one peer to another is in the window.
func (w *Window) has(from, to, step int) bool {
	return (w.From < 0 || w.From == from) && (w.To < 0 || w.To == to) && step >= w.First && (w.Last < 0 || step <= w.Last)
}

// suffers is what the windows do to a message: how often it arrives, whether damaged, and how much later.
func (c *cluster) suffers(from, to int) (times int, damaged bool, late int64) {
	times = 1
	if len(c.o.Windows) == 0 || from >= len(c.nodes) {
		return times, false, 0
	}
	step := 0
	if l := c.nodes[from].life; l != nil {
		step = int(l.step)
	}
	for i := range c.o.Windows {
		w := &c.o.Windows[i]
		if !w.has(from, to, step) {
			continue
		}
		x, nth := c.dice.throw(askWindow, from, to)
		e := Event{From: from, To: to, Nth: ofWindow + nth}
		if w.Partition > 0 && !c.parted[i] && c.opens(w, i, e) {
			return 0, false, 0
		}
		late += c.dice.below(w.Delay+1, askLate, from, to)
		switch share := float64(x>>11) / (1 << 53); {
		case share < w.Drop:
			times, damaged, late = c.meets(Drop, e, times, damaged, late)
		case share < w.Drop+w.Duplicate:
			times, damaged, late = c.meets(Duplicate, e, times, damaged, late)
		case share < w.Drop+w.Duplicate+w.Corrupt:
			times, damaged, late = c.meets(Corrupt, e, times, damaged, late)
		case share < w.Drop+w.Duplicate+w.Corrupt+w.Reorder:
			late += 1 + c.dice.below(8*int64(c.f.DelayMax), askLate, from, to)
		}
	}
	return times, damaged, late
}

// opens begins the partition of a window, with its first message.
func (c *cluster) opens(w *Window, i int, e Event) bool {
	e.Kind, e.Lasts = Cut, w.Partition
	e, ok := c.strikes(e, true, nil)
	if ok {
		c.parted[i] = true
		c.link(e.From, e.To).cut = c.now + e.Lasts
	}
	return ok
}

// meets is a fault that a window gives a message.
func (c *cluster) meets(k Kind, e Event, times int, damaged bool, late int64) (int, bool, int64) {
	e.Kind = k
	if _, ok := c.strikes(e, true, &c.f.Losses); !ok {
		return times, damaged, late
	}
	switch k {
	case Drop:
		times = 0
	case Duplicate:
		times = 2
	default:
		damaged = true
	}
	return times, damaged, late
}

// servers lets the links of all begin anew when the first rank comes to a step at which a server fails.
func (c *cluster) servers(step int) {
	for i, at := range c.o.Servers {
		if at != step || c.fallen[i] {
			continue
		}
		c.fallen[i] = true
		for a := range c.collector() + 1 {
			for b := range a {
				if _, ok := c.strikes(Event{Kind: Reset, From: b, To: a, Nth: ofServer + uint64(i)}, true, nil); ok {
					c.reset(b, a, true)
				}
			}
		}
	}
}

// What windows and servers do is numbered apart from what the dice do.
const (
	ofServer = 1 << 40
	ofWindow = 1 << 41
	nthMask  = ofServer - 1
)
