package moe

import (
	"math"
	"slices"
	"sort"

	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// Capacity bounds the rows of an expert. C = ceil(rows·K/E · Factor) and the kept set are decided over
// the whole microbatch, padding rows included: inserted slots do not count. The zero value drops nothing.
type Capacity struct {
	Factor     float64
	ByPosition bool // keep the first rows instead of the most probable
	Pad        bool // every expert computes C rows: others fill it up, with probability 0
}

// claim is one row that wants an expert.
type claim struct {
	row  int // position·B + b in the whole microbatch
	prob float64
}

// limit is C for a number of rows.
func (k Capacity) limit(rows, topk, experts int) int {
	return int(math.Ceil(float64(rows) * float64(topk) / float64(experts) * k.Factor))
}

// keep sorts an expert's claims by what decides and cuts them.
func (k Capacity) keep(claims []claim, limit int) []claim {
	sort.SliceStable(claims, func(i, j int) bool {
		a, b := claims[i], claims[j]
		if !k.ByPosition && a.prob != b.prob {
			return a.prob > b.prob
		}
		return a.row < b.row
	})
	return claims[:min(limit, len(claims))]
}

// The bits of a probability that decide about capacity. Tokens that are alike have probabilities that differ by the
// rounding of sums which a layout cuts elsewhere; rounded to these bits they are equal, and the first of them is kept on
// every layout.
const (
	decidingBitsF32 = 14
	decidingBitsF64 = 32
)

// deciding is a probability as capacity compares it; NaN comes behind all numbers.
func deciding[T tensor.Float](p T) float64 {
	if p != p {
		return -1
	}
	drop := 52 - decidingBitsF64
	if tensor.DTypeOf[T]() == tensor.F32 {
		drop = 52 - decidingBitsF32
	}
	half := uint64(1) << (drop - 1)
	return math.Float64frombits((math.Float64bits(float64(p)) + half) &^ (2*half - 1))
}

// fill is the rows that fill an expert up to limit: those that did not choose it, in order from the expert's share of the
// rows on, round and round, so that filling up is spread over rows. Rows are sorted and so are claims by row.
func (k Capacity) fill(expert, experts, limit int, rows []int, claims []claim) []int {
	missing := min(limit, len(rows)) - len(claims)
	if !k.Pad || missing <= 0 {
		return nil
	}
	chose := map[int]bool{}
	for _, cl := range claims {
		chose[cl.row] = true
	}
	out := make([]int, 0, missing)
	for i := expert * len(rows) / experts; len(out) < missing; i++ {
		if row := rows[i%len(rows)]; !chose[row] {
			out = append(out, row)
		}
	}
	return out
}

// wholeRow is the number of a local row in the whole microbatch: position·B + b; −1 for a slot that holds nothing.
func wholeRow[T tensor.Float](c *nn.Ctx[T], i int) int {
	from, _ := c.SPRows()
	slot := (from + i) / c.B
	b := (from + i) % c.B
	src := c.Frame.Src[b*c.L()+slot]
	if src < 0 {
		return -1
	}
	return int(src)*c.B + b
}

// gatherAll joins equal-sized pieces of the ranks that share a microbatch's sequence: tensor-parallel ranks under
// sequence parallelism, then context-parallel ones.
func gatherAll[T tensor.Float](c *nn.Ctx[T], x []float64, tag nn.Tag) []float64 {
	axes := []mesh.Axis{mesh.CP}
	if c.SP {
		axes = []mesh.Axis{mesh.TP, mesh.CP}
	}
	for _, a := range axes {
		if n := c.Comm.Size(a); n > 1 {
			out := make([]float64, n*len(x))
			c.Comm.Do(&nn.Op{Axis: a, Kind: nn.AllGather, DType: tensor.F64, Tag: tag, Site: c.Site, In: tensor.Bytes(x), Out: tensor.Bytes(out)})
			x = out
		}
	}
	return x
}

// allClaims are the claims on every expert, and the rows, ascending, of the whole microbatch.
func allClaims[T tensor.Float](c *nn.Ctx[T], r Routing[T], experts int) (claims [][]claim, rows []int) {
	width := 1 + 2*r.K // row, experts, probabilities
	mine := make([]float64, 0, len(r.Expert)/r.K*width)
	for i := range len(r.Expert) / r.K {
		mine = append(mine, float64(wholeRow(c, i)))
		for j := range r.K {
			mine = append(mine, float64(r.Expert[i*r.K+j]), deciding(r.Prob[i*r.K+j]))
		}
	}
	all := gatherAll(c, mine, nn.TagRouterCapacity)
	claims = make([][]claim, experts)
	for at := 0; at < len(all); at += width {
		row := int(all[at])
		if row < 0 {
			continue
		}
		rows = append(rows, row)
		for j := range r.K {
			e := int(all[at+1+2*j])
			claims[e] = append(claims[e], claim{row, all[at+2+2*j]})
		}
	}
	slices.Sort(rows)
	return claims, rows
}

// applyCapacity drops what is beyond an expert's capacity: expert −1, probability 0. The routing given is not changed.
// Every rank sees all rows' claims and decides alike. Padded is what experts compute: the same, or wider by the entries
// with which rows of this rank fill experts up.
func applyCapacity[T tensor.Float](k Capacity, c *nn.Ctx[T], r Routing[T], experts int) (kept, padded Routing[T]) {
	if k.Factor == 0 {
		return r, r
	}
	claims, rows := allClaims(c, r, experts)
	limit := k.limit(len(rows), r.K, experts)
	keeps := make([]map[int]bool, experts)
	fills := map[int][]int32{} // by row: experts, ascending
	for e := range claims {
		keeps[e] = map[int]bool{}
		for _, cl := range k.keep(claims[e], limit) {
			keeps[e][cl.row] = true
		}
		for _, row := range k.fill(e, experts, limit, rows, claims[e]) {
			fills[row] = append(fills[row], int32(e))
		}
	}
	kept = Routing[T]{K: r.K, Expert: slices.Clone(r.Expert), Prob: slices.Clone(r.Prob)}
	for i := range kept.Expert {
		row := wholeRow(c, i/r.K)
		if row >= 0 && !keeps[kept.Expert[i]][row] {
			kept.Expert[i], kept.Prob[i] = -1, 0
		}
	}
	return kept, widened(c, kept, fills)
}

// widened has room behind each row's choices for the experts that it fills up.
func widened[T tensor.Float](c *nn.Ctx[T], r Routing[T], fills map[int][]int32) Routing[T] {
	n, most := len(r.Expert)/r.K, 0
	for i := range n {
		most = max(most, len(fills[wholeRow(c, i)]))
	}
	if most == 0 {
		return r
	}
	w := r.K + most
	out := Routing[T]{K: w, Expert: make([]int32, n*w), Prob: make([]T, n*w)}
	for i := range n {
		experts := out.Expert[i*w : (i+1)*w]
		copy(out.Prob[i*w:], r.Prob[i*r.K:(i+1)*r.K])
		at := copy(experts, r.Expert[i*r.K:(i+1)*r.K])
		at += copy(experts[at:], fills[wholeRow(c, i)])
		for ; at < w; at++ {
			experts[at] = -1
		}
	}
	return out
}
