package oracle

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"phalanx/nn"
)

// Difference is the first place where a run leaves its oracle.
type Difference struct {
	Quantity   string
	Step       int // 1-based
	Microbatch int // of the whole step; −1: of the step
	Index      int // element, row-major
	At         string
	Rank       string // who holds the element
	Got, Want  float64
	Note       string // in place of values: replicas that differ, a quantity that is missing
}

// String is one line: quantity, place, rank, both values.
func (d *Difference) String() string {
	s := fmt.Sprintf("%s at step %d", d.Quantity, d.Step)
	if d.Microbatch >= 0 {
		s += fmt.Sprintf(" microbatch %d", d.Microbatch)
	}
	if depth, ok := depthIn(d.Quantity); ok {
		s += fmt.Sprintf(" (depth %d)", depth)
	}
	if d.Note != "" {
		return s + ": " + d.Note
	}
	if d.At != "" {
		s += " " + d.At
	}
	if d.Rank != "" {
		s += " on " + d.Rank
	}
	return s + fmt.Sprintf(": got %.12g, want %.12g", d.Got, d.Want)
}

// depthIn reads the depth out of "mtp.k.…" and "probe.mtp_k.…".
func depthIn(name string) (int, bool) {
	for _, prefix := range []string{"mtp.", "probe.mtp_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			head, _, _ := strings.Cut(rest, ".")
			k, err := strconv.Atoi(head)
			return k, err == nil
		}
	}
	return 0, false
}

// itemOrder is the order in which a layer, a head or a depth comes to its quantities.
var itemOrder = []string{"input_ids", "position_ids", "labels", "loss_mask", "padding_mask", "router.logits", "router.probs",
	"router.routing_map", "router.tokens_per_expert", "router.valid_tokens", "router.aux_loss", "router.z_loss", "experts.rows", "hidden",
	"logits", "token_loss", "tokens", "token_weight", "loss_sum"}

// before orders quantities as the program computes them: inputs, decoder layers, LM head, depths.
func before(a, b Key) bool {
	if a.Step != b.Step {
		return a.Step < b.Step
	}
	if a.Microbatch != b.Microbatch {
		return a.Microbatch < b.Microbatch
	}
	as, ai := position(a.Name)
	bs, bi := position(b.Name)
	if as != bs {
		return as < bs
	}
	if ai != bi {
		return ai < bi
	}
	return a.Name < b.Name
}

// position is the place of a quantity's scope and of its item in it.
func position(name string) (scope, item int) {
	kind, rest, _ := strings.Cut(name, ".")
	switch kind {
	case "batch":
		scope = -1
	case "layer", "mtp":
		number, tail, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(number)
		if err != nil {
			return math.MaxInt, 0
		}
		scope, rest = n, tail
		if kind == "mtp" {
			scope += 1 << 20
		}
	case "lm":
		scope = 1 << 19
	}
	for i, it := range itemOrder {
		if it == rest {
			return scope, i
		}
	}
	return scope, len(itemOrder)
}

// FirstDifference compares everything that want recorded of a 0-based step, in the order of the program. Exact quantities
// must be equal, others within tol of the largest element. It returns nil if nothing differs, and the number of elements
// compared.
func FirstDifference(got, want *Recorder, step int, tol float64) (*Difference, int) {
	keys := slices.DeleteFunc(want.Keys(), func(k Key) bool { return k.Step != step })
	sort.SliceStable(keys, func(i, j int) bool { return before(keys[i], keys[j]) })
	compared := 0
	for _, k := range keys {
		w, _, err := want.Get(k)
		if err != nil {
			return &Difference{Quantity: k.Name, Step: k.Step + 1, Microbatch: k.Microbatch, Note: "the oracle itself: " + err.Error()}, compared
		}
		g, ok, err := got.Get(k)
		switch {
		case err != nil:
			return &Difference{Quantity: k.Name, Step: k.Step + 1, Microbatch: k.Microbatch, Note: err.Error()}, compared
		case !ok:
			return &Difference{Quantity: k.Name, Step: k.Step + 1, Microbatch: k.Microbatch, Note: "was not recorded"}, compared
		}
		compared += len(w.Data)
		most := tol
		if w.Exact {
			most = 0
		}
		if d := differ(g.Data, w.Data, most, nil); d != nil {
			d.Quantity, d.Step, d.Microbatch = k.Name, k.Step+1, k.Microbatch
			d.At, d.Rank = got.holder(k, d.Index)
			return d, compared
		}
	}
	return nil, compared
}

// Scale is what a tolerance of one number is relative to: the number, 1 below 1e-12.
func Scale(want float64) float64 { return scaleOf([]float64{want}) }

// scaleOf is what a tolerance is relative to: the largest element, 1 below 1e-12.
func scaleOf(x []float64) float64 {
	scale := 0.0
	for _, v := range x {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			scale = math.Max(scale, math.Abs(v))
		}
	}
	if scale < 1e-12 {
		return 1
	}
	return scale
}

// differ is the first element that is further off than tol of the largest element and, if it has one, its own slack.
func differ(got, want []float64, tol float64, slack []float64) *Difference {
	if len(got) != len(want) {
		return &Difference{Note: fmt.Sprintf("has %d elements, want %d", len(got), len(want))}
	}
	tol *= scaleOf(want)
	for i, w := range want {
		if got[i] == w || math.IsNaN(got[i]) && math.IsNaN(w) {
			continue
		}
		most := tol
		if slack != nil {
			most += slack[i]
		}
		if d := math.Abs(got[i] - w); !(d <= most) {
			return &Difference{Index: i, Got: got[i], Want: w}
		}
	}
	return nil
}

// DifferWhole compares unsharded tensors by name, in ascending order of names. A reach is that of weights; nil: none.
func DifferWhole(prefix string, got, want []Whole, step int, tol float64, reach *Reach) *Difference {
	byName := map[string]Whole{}
	for _, g := range got {
		byName[g.Name] = g
	}
	for _, w := range want {
		d := differ(byName[w.Name].Floats(), w.Floats(), tol, reach.Of(w.Name))
		if d == nil {
			continue
		}
		d.Quantity, d.Step, d.Microbatch = prefix+w.Name, step, -1
		if d.Note == "" {
			d.At = fmt.Sprintf("[%d]", d.Index)
		}
		return d
	}
	return nil
}

// holder says where an element of a joined quantity stands and which rank holds it.
func (r *Recorder) holder(k Key, index int) (at, rank string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.parts[k][place{}]
	if len(first) == 0 {
		return "", ""
	}
	o := first[0]
	if o.Shape == nn.Plain {
		return fmt.Sprintf("[%d]", index), ""
	}
	f, width := o.Frame, 1
	if o.Shape == nn.Slots {
		width = o.C
		if o.Cols == nn.TPShard {
			width *= r.sizes.TP
		}
	}
	cell, col := index/width, index%width
	b, pos := cell/f.S, cell%f.S
	if o.Shape == nn.Slots {
		b, pos = cell%f.B, cell/f.B
	}
	at = fmt.Sprintf("row %d position %d", b, pos)
	if width > 1 {
		at += fmt.Sprintf(" feature %d", col)
	}
	cp, slot := r.slotOf(k, b, pos)
	rank = fmt.Sprintf("cp rank %d", cp)
	switch {
	case o.Cols == nn.TPShard && r.sizes.TP > 1:
		rank += fmt.Sprintf(" tp rank %d", col/o.C)
	case o.Layout&nn.SPShard != 0:
		rank += fmt.Sprintf(" tp rank %d", slot/max(f.L/r.sizes.TP, 1))
	}
	return at, rank
}

// slotOf is the context-parallel rank that holds a position of a row, and its slot there.
func (r *Recorder) slotOf(k Key, b, pos int) (cp, slot int) {
	for cp := range r.sizes.CP {
		chunks := r.parts[k][place{cp, 0}]
		if len(chunks) == 0 {
			continue
		}
		f := chunks[0].Frame
		for i, src := range f.Src[b*f.L : (b+1)*f.L] {
			if int(src) == pos {
				return cp, i
			}
		}
	}
	return 0, 0
}
