package moe

import (
	"math"
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

// applyCapacity drops what is beyond an expert's capacity: expert −1, probability 0. The routing given is not changed.
// Every rank sees all rows' claims and decides alike.
func applyCapacity[T tensor.Float](k Capacity, c *nn.Ctx[T], r Routing[T], experts int) Routing[T] {
	if k.Factor == 0 {
		return r
	}
	width := 1 + 2*r.K // row, experts, probabilities
	mine := make([]float64, 0, len(r.Expert)/r.K*width)
	for i := range len(r.Expert) / r.K {
		mine = append(mine, float64(wholeRow(c, i)))
		for j := range r.K {
			mine = append(mine, float64(r.Expert[i*r.K+j]), float64(r.Prob[i*r.K+j]))
		}
	}
	all := gatherAll(c, mine, nn.TagRouterCapacity)
	claims, rows := make([][]claim, experts), 0
	for at := 0; at < len(all); at += width {
		row := int(all[at])
		if row < 0 {
			continue
		}
		rows++
		for j := range r.K {
			e := int(all[at+1+2*j])
			claims[e] = append(claims[e], claim{row, all[at+2+2*j]})
		}
	}
	kept := make([]map[int]bool, experts)
	limit := k.limit(rows, r.K, experts)
	for e := range claims {
		kept[e] = map[int]bool{}
		for _, cl := range k.keep(claims[e], limit) {
			kept[e][cl.row] = true
		}
	}
	out := Routing[T]{K: r.K, Expert: append([]int32(nil), r.Expert...), Prob: append([]T(nil), r.Prob...)}
	for i := range out.Expert {
		row := wholeRow(c, i/r.K)
		if row >= 0 && !kept[out.Expert[i]][row] {
			out.Expert[i], out.Prob[i] = -1, 0
		}
	}
	return out
}
