package explain

import (
	"fmt"
	"slices"

	"phalanx/internal/inproc"
	"phalanx/mesh"
	"phalanx/mtp"
	"phalanx/nn"
)

// view is what one term sees of the microbatch: [B, n] with n = L on a rank, S for whole rows.
type view struct {
	ids, labels, positions []int32
	loss                   []bool
	pad                    []bool // nil: absent. On a member with sequence parallelism: its shard [B, L/tp]
	state                  []State
	routed                 []route
}

// route is what a router does with a row of activations, and whether it should.
type route uint8

const (
	unheld  route = iota // not on this member, or an inserted slot
	counts               // a real token
	skips                // padding
	leaks                // counts padding, or what a roll filled in
	misses               // skips a real token
	waiting              // sees an inserted slot, which holds nothing, and skips it
)

// truth is what the rules give for whole rows [B, S] whatever the scenario does with its masks or plants, by term.
type truth struct {
	ids, labels, positions []int32
	loss                   []bool // labels that the data's own loss mask counts
	pad                    []bool // inputs that are padding or filled in, as far as is known
	filled                 []bool // the roll left the document
}

// truths rolls them whole: the batch as the source gives it, the validity of inputs, and ones, whose fill shows.
func (x *subject) truths() []truth {
	mb := x.mb
	f := nn.NewFrames(mb.Docs, mb.B, mb.S, 1, 1)[0]
	ids, labels, positions, loss, real := mb.IDs, mb.Labels, mb.Positions, mb.Loss, x.realTokens()
	inside := (&nn.PadMask{B: mb.B, S: mb.S, Pad: make([]bool, mb.B*mb.S)}).Validity()
	var out []truth
	for range x.depths + 1 {
		t := truth{ids: ids, labels: labels, positions: positions, loss: make([]bool, mb.B*mb.S),
			pad: real.PadMask().Pad, filled: inside.PadMask().Pad}
		for i := range t.loss {
			t.loss[i] = loss.At(i/mb.S, i%mb.S) != 0
		}
		out = append(out, t)
		ids, labels, positions = nn.RollWhole(f, ids), nn.RollWhole(f, labels), nn.RollWhole(f, positions)
		loss, real, inside = loss.RollWhole(f), real.RollWhole(f), inside.RollWhole(f)
	}
	return out
}

// realTokens is which inputs are data, not padding: as the padding mask says, or the data without one, and what lies
// between the logical and the physical end of a document.
func (x *subject) realTokens() *nn.Validity {
	mask := x.mb.Pad
	if mask == nil {
		mask = x.hidden
	}
	if mask == nil {
		mask = &nn.PadMask{B: x.mb.B, S: x.mb.S, Pad: make([]bool, x.mb.B*x.mb.S)}
	}
	v := mask.Validity()
	for b := range x.mb.B {
		for _, d := range x.mb.Docs.Row(b, x.mb.S) {
			for i := d.Start + d.Logical; i < d.Start+d.Physical; i++ {
				v.Valid[b*x.mb.S+i] = false
			}
		}
	}
	return v
}

// member is one rank of the tensor-parallel and context-parallel groups.
type member struct {
	views    []view // by term
	from, to int    // local slots whose activations it holds
}

// rollOnRanks cuts the microbatch and rolls it on every rank, members in rank order.
func (x *subject) rollOnRanks(frames []*nn.Frame, truths []truth) ([]*member, error) {
	sizes := mesh.Sizes{TP: x.tp, CP: len(frames), DP: 1, PP: 1}
	members := make([]*member, sizes.World())
	err := inproc.Run(sizes, func(rank int) []func(nn.Comm) {
		members[rank] = &member{}
		return []func(nn.Comm){func(c nn.Comm) { x.roll(c, frames, truths, members[rank]) }}
	}, inproc.Options{})
	if err != nil {
		return nil, fmt.Errorf("explain: the rolls of step %d microbatch %d: %w", x.o.Step, x.o.Microbatch, err)
	}
	return members, nil
}

// roll is the program of one rank: what model does with a batch, without the layers.
func (x *subject) roll(c nn.Comm, frames []*nn.Frame, truths []truth, m *member) {
	frame := frames[c.Rank(mesh.CP)]
	ctx := &nn.Ctx[float32]{Comm: c, B: x.mb.B, Frame: frame, Frames: frames, SP: x.tp > 1, Mut: x.mut,
		Site: nn.Site{Step: x.o.Step - 1, Microbatch: x.o.Microbatch, Phase: nn.Forward, Layer: -1}}
	if x.mut != 0 {
		ctx.Rolls = frame.RollFrame(x.mb.Docs)
	}
	first, n := ctx.SPRows()
	m.from, m.to = first/ctx.B, (first+n)/ctx.B
	in := x.cut(ctx)
	m.see(ctx, in, truths[0])
	in.Loss = x.depthMask(x.mb).Local(frame)
	for k := 1; k <= x.depths; k++ {
		ctx.Site.Depth = k
		in = mtp.Roll(ctx, in)
		ctx.SetPad(in.Pad)
		m.see(ctx, in, truths[k])
	}
}

// cut takes this rank's slots of the batch, as model does for a pass.
func (x *subject) cut(c *nn.Ctx[float32]) mtp.Inputs[float32] {
	f, mb := c.Frame, x.mb
	pad := mb.Pad.Local(f)
	if c.SP {
		pad = pad.Shard(c.TPRank(), c.TP())
	}
	c.SetPad(pad)
	in := mtp.Inputs[float32]{IDs: nn.TakeRows(f, mb.IDs, 0), Labels: nn.TakeRows(f, mb.Labels, 0),
		Positions: nn.TakeRows(f, mb.Positions, 0), Loss: mb.Loss.Local(f), Pad: pad}
	if mb.Embeddings != nil { // one number a slot travels as all of them would
		in.Embeddings = make(mtp.Embeddings[float32], len(in.IDs))
	}
	return in
}

// see keeps what a term sees on this rank.
func (m *member) see(c *nn.Ctx[float32], in mtp.Inputs[float32], t truth) {
	f := c.Frame
	v := view{ids: in.IDs, labels: in.Labels, positions: in.Positions, loss: make([]bool, f.B*f.L),
		state: make([]State, f.B*f.L), routed: make([]route, f.B*f.L)}
	if in.Pad != nil {
		v.pad = in.Pad.Pad
	}
	for i, src := range f.Src {
		v.loss[i] = in.Loss.At(i/f.L, i%f.L) != 0
		if src >= 0 {
			at := i/f.L*f.S + int(src)
			same := v.ids[i] == t.ids[at] && v.labels[i] == t.labels[at] && v.positions[i] == t.positions[at]
			v.state[i] = stateOf(v.loss[i], t, at, same)
		}
	}
	first, n := c.SPRows()
	for row := range n {
		i := row%c.B*f.L + (first+row)/c.B
		if src := f.Src[i]; src >= 0 {
			v.routed[i] = routeOf(c.Skips(row), t.pad[i/f.L*f.S+int(src)])
		} else {
			v.routed[i] = waiting
		}
	}
	m.views = append(m.views, v)
}

// stateOf is what a position is to a term; same says whether it holds what the rules give.
func stateOf(counted bool, t truth, at int, same bool) State {
	switch {
	case counted && (!t.loss[at] || t.pad[at]):
		return Leaked
	case !same, counted != t.loss[at]:
		return Wrong
	case counted:
		return Counted
	case t.filled[at]:
		return Filled
	case t.pad[at]:
		return Padding
	}
	return Ignored
}

func routeOf(skipped, pad bool) route {
	switch {
	case skipped && pad:
		return skips
	case skipped:
		return misses
	case pad:
		return leaks
	}
	return counts
}

// local is one context-parallel rank with its shards joined.
type local struct {
	frame *nn.Frame
	views []view // by term
	tpOf  []int  // by slot: the tensor-parallel rank that holds it; nil: all do
}

// joinShards puts what tensor-parallel ranks hold a slice of back together.
func (x *subject) joinShards(frames []*nn.Frame, members []*member) []local {
	var out []local
	for cp, f := range frames {
		group := members[cp*x.tp : (cp+1)*x.tp]
		l := local{frame: f, views: slices.Clone(group[0].views)}
		if x.tp > 1 {
			l.tpOf = make([]int, f.L)
		}
		for k := range l.views {
			joinViews(&l.views[k], group, k, f, x.tp)
		}
		for tp, m := range group[1:] {
			for slot := m.from; slot < m.to; slot++ {
				l.tpOf[slot] = tp + 1
			}
		}
		out = append(out, l)
	}
	return out
}

// joinViews completes the view of the first member.
func joinViews(v *view, group []*member, k int, f *nn.Frame, tp int) {
	shards := [][]bool{v.pad}
	for _, m := range group[1:] {
		shards = append(shards, m.views[k].pad)
		for i, r := range m.views[k].routed {
			v.routed[i] = max(v.routed[i], r) // one of them is unheld
		}
	}
	if v.pad != nil {
		v.pad = nn.JoinPadMask(shards, f.B, f.L/tp).Pad
	}
}

// joinRanks puts the slots of all ranks at their positions: one view of [B, S] per term.
func (x *subject) joinRanks(ranks []local) []view {
	n := x.mb.B * x.mb.S
	whole := make([]view, x.depths+1)
	for k := range whole {
		v := view{ids: make([]int32, n), labels: make([]int32, n), positions: make([]int32, n), loss: make([]bool, n),
			state: make([]State, n), routed: make([]route, n)}
		if x.mb.Pad != nil {
			v.pad = make([]bool, n)
		}
		for _, r := range ranks {
			from := r.views[k]
			nn.PutRows(r.frame, from.ids, v.ids)
			nn.PutRows(r.frame, from.labels, v.labels)
			nn.PutRows(r.frame, from.positions, v.positions)
			nn.PutRows(r.frame, from.loss, v.loss)
			nn.PutRows(r.frame, from.state, v.state)
			nn.PutRows(r.frame, from.routed, v.routed)
			if v.pad != nil {
				nn.PutRows(r.frame, from.pad, v.pad)
			}
		}
		whole[k] = v
	}
	return whole
}

// agree compares the counts of the ranks with those of the whole batch, which are the denominators.
func (x *subject) agree(counted []int64, ranks []local) error {
	for k, want := range counted {
		got := int64(0)
		for _, r := range ranks {
			got += count(r.views[k].loss, true)
		}
		if got != want {
			return fmt.Errorf("explain: step %d microbatch %d: the ranks count %d tokens of %s, the whole batch has %d; "+
				"this is a bug of phalanx", x.o.Step, x.o.Microbatch, got, termName(k), want)
		}
	}
	return nil
}

func count[V comparable](x []V, what V) int64 {
	n := int64(0)
	for _, v := range x {
		if v == what {
			n++
		}
	}
	return n
}
