package train

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/mesh"
)

// Edge is the messages of one kind from a chunk to its neighbour.
type Edge struct {
	Kind     OpKind
	From, To int // chunks over the whole layout
	// Mailbox is the most messages that can have been sent and not yet been taken, however fast or slow each rank and
	// message is. With backward passes it is at most the microbatches in flight on the lower chunk; without, a rank may be
	// ahead by all of them.
	Mailbox int
}

// Plan is what CheckPlan finds out about schedules that hold.
type Plan struct {
	Edges    []Edge  // forward edges by chunk, then backward ones
	InFlight [][]int // microbatches with kept activations, at most: [pipeline rank][virtual chunk]
	Makespan int     // of a step where a forward pass takes 1 and a backward pass 2 on every chunk, and messages no time
	Work     int     // of each rank in the same units
}

// Bubble is idle time over work, (p−1)/(v·M) for 1F1B and for interleaving with whole groups of p.
func (p *Plan) Bubble() float64 { return float64(p.Makespan-p.Work) / float64(p.Work) }

// CheckPlan proves that schedules of the pipeline's ranks, each in its order, run to their end whatever the delays and
// the order of arrival: every chunk runs every microbatch once forward and then once backward (forward only: once);
// each message has one sender and one receiver, and they name each other; and no passes wait for each other in a circle.
// Since sends never wait and receives are by name, one run that ends is all runs that end: which passes can run depends
// only on those that have. The error names the pass and what it waits for.
func CheckPlan(p Pipeline, l mesh.Layout, ops [][]Op) (*Plan, error) {
	if p.ranks() != l.PP || p.chunks() != l.VPP {
		return nil, fmt.Errorf("the schedules are for %d ranks with %d chunks, the layout for %d with %d", p.ranks(), p.chunks(), l.PP, l.VPP)
	}
	passes, err := Expand(l, p.Microbatches, ops)
	if err != nil {
		return nil, err
	}
	return CheckPasses(p, l, passes)
}

// CheckPasses is CheckPlan for passes with their messages.
func CheckPasses(p Pipeline, l mesh.Layout, passes [][]Pass) (*Plan, error) {
	c := &planCheck{p: p, l: l, passes: passes, book: newBook(p, l)}
	for _, check := range []func() error{c.complete, c.register, c.matched, c.run} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return c.plan(), nil
}

// planCheck is a check under way.
type planCheck struct {
	p      Pipeline
	l      mesh.Layout
	passes [][]Pass
	book   *book
	runner *runner
}

func (c *planCheck) kinds() []OpKind {
	if c.p.ForwardOnly {
		return []OpKind{ForwardOp}
	}
	return []OpKind{ForwardOp, BackwardOp}
}

// complete checks that every chunk runs every pass once, on its rank, and forward before backward.
func (c *planCheck) complete() error {
	done := make([]bool, c.book.size())
	for r, list := range c.passes {
		for _, p := range list {
			i := c.book.index(p.Kind, p.Microbatch, p.Stage)
			switch {
			case c.l.Rank(p.Stage) != r || c.l.Virtual(p.Stage) != p.Chunk:
				return fmt.Errorf("rank %d runs %s of chunk %d, which is virtual chunk %d of rank %d", r, p.Op, p.Stage, c.l.Virtual(p.Stage), c.l.Rank(p.Stage))
			case done[i]:
				return fmt.Errorf("rank %d runs %s twice", r, p.Op)
			case p.Kind == BackwardOp && c.p.ForwardOnly:
				return fmt.Errorf("rank %d runs %s in a schedule of forward passes only", r, p.Op)
			case p.Kind == BackwardOp && !done[c.book.index(ForwardOp, p.Microbatch, p.Stage)]:
				return fmt.Errorf("rank %d runs %s before %s, whose activations it needs", r, p.Op, Op{ForwardOp, p.Microbatch, p.Chunk})
			}
			done[i] = true
		}
	}
	for _, kind := range c.kinds() {
		for j := range c.l.Chunks {
			for m := range c.p.Microbatches {
				if !done[c.book.index(kind, m, j)] {
					return fmt.Errorf("rank %d never runs %s", c.l.Rank(j), Op{kind, m, c.l.Virtual(j)})
				}
			}
		}
	}
	return nil
}

// register writes down who sends and who takes each message.
func (c *planCheck) register() error {
	for r, list := range c.passes {
		for i, p := range list {
			here := stop{rank: r, pass: i}
			for _, m := range p.Gives {
				if err := c.book.put(c.book.gives, m, here, c, "sends"); err != nil {
					return err
				}
			}
			for _, m := range p.Takes {
				if err := c.book.put(c.book.takes, m, here, c, "takes"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// matched checks that senders and receivers name each other.
func (c *planCheck) matched() error {
	for r, list := range c.passes {
		for _, p := range list {
			for _, m := range p.Takes {
				at := c.book.gives[c.book.of(m)]
				switch {
				case at == nowhere:
					return fmt.Errorf("rank %d in %s waits for %s, which no rank sends", r, p.Op, m)
				case at.rank != m.From:
					return fmt.Errorf("rank %d in %s waits for %s from rank %d, and rank %d sends it in %s", r, p.Op, m, m.From, at.rank, c.op(at))
				}
			}
			for _, m := range p.Gives {
				at := c.book.takes[c.book.of(m)]
				switch {
				case at == nowhere:
					return fmt.Errorf("rank %d in %s sends %s, which no rank takes", r, p.Op, m)
				case at.rank != m.To:
					return fmt.Errorf("rank %d in %s sends %s to rank %d, and rank %d waits for it in %s", r, p.Op, m, m.To, at.rank, c.op(at))
				}
			}
		}
	}
	return nil
}

func (c *planCheck) op(at stop) Op { return c.passes[at.rank][at.pass].Op }

// run runs the passes until all are done or none can go on.
func (c *planCheck) run() error {
	c.runner = newRunner(c)
	for c.runner.round() {
	}
	for r, next := range c.runner.next {
		if next < len(c.passes[r]) {
			return c.circle(r)
		}
	}
	return nil
}

// circle says who waits for whom, from rank r on until a rank comes again.
func (c *planCheck) circle(r int) error {
	var parts []string
	for seen := map[int]bool{}; !seen[r]; {
		seen[r] = true
		p := c.passes[r][c.runner.next[r]]
		missing := p.Takes[slices.IndexFunc(p.Takes, func(m Message) bool { return !c.runner.sent[c.book.of(m)].there })]
		from := c.book.gives[c.book.of(missing)]
		parts = append(parts, fmt.Sprintf("rank %d in %s waits for %s, which rank %d sends in %s", r, p.Op, missing, from.rank, c.op(from)))
		r = from.rank
	}
	return fmt.Errorf("passes wait for each other: %s", strings.Join(parts, "; "))
}

// plan gathers what the run showed.
func (c *planCheck) plan() *Plan {
	out := &Plan{Makespan: slices.Max(c.runner.time), InFlight: make([][]int, c.l.PP)}
	for r, list := range c.passes {
		ops := make([]Op, len(list))
		for i, p := range list {
			ops[i] = p.Op
		}
		out.InFlight[r] = InFlight(ops, c.l.VPP)
	}
	for _, kind := range c.kinds() {
		out.Work += c.l.VPP * c.p.Microbatches * cost(kind)
		for j := range len(c.l.Chunks) - 1 {
			e := Edge{Kind: kind, From: j, To: j + 1}
			if kind == BackwardOp {
				e.From, e.To = e.To, e.From
			}
			e.Mailbox = c.runner.mailbox(e)
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}
