package train

import (
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// BucketElements is the number of gradient elements reduced in one operation, unless ddp.bucket_size says otherwise:
// 16 MiB of fp32, small enough that a bucket's copies stay a fraction of the model, large enough that the latency of an
// operation does not count.
const BucketElements = 1 << 22

// normBlock is the number of neighbouring elements of a parameter whose squares are added together: leaves of the
// gradient norm. Slices are cut between blocks, so that the norm has the same bits whoever holds which slice.
const normBlock = 256

// bucket is a run of a flat buffer whose gradients are added over the ranks of axes in one exchange. With a sharded
// optimizer it is cut into one slice for each of these ranks: slice i is [cuts[i], cuts[i+1]) of the flat buffer.
type bucket[T tensor.Float] struct {
	flat   *nn.Flat[T]
	axes   []mesh.Axis
	cuts   []int
	mine   int // the slice of this rank
	length int // of the longest slice; bf16 slices travel as long as it is
	lowest int // the lowest decoder layer with a part of it; −1: other parameters
}

// from and to are the whole run.
func (b *bucket[T]) from() int { return b.cuts[0] }
func (b *bucket[T]) to() int   { return b.cuts[len(b.cuts)-1] }

// slices is the number of slices.
func (b *bucket[T]) slices() int { return len(b.cuts) - 1 }

// own is this rank's slice of the flat buffer.
func (b *bucket[T]) own() (from, to int) { return b.cuts[b.mine], b.cuts[b.mine+1] }

// division is one axis' part in the cutting of a bucket: its members share [from, to) of the flat buffer, this one has [low,
// high), and cuts are the bytes from the beginning of the run at which their parts begin, and its end.
type division struct {
	axis      mesh.Axis
	from, to  int
	low, high int
	cuts      []int
}

// divisions are the axes of more than one member, in the order of reduction: each cuts what the one before has left.
func (b *bucket[T]) divisions(c nn.Comm) []division {
	var all []division
	first, count := 0, b.slices()
	unit := tensor.DTypeOf[T]().Size()
	for _, axis := range b.axes {
		n := c.Size(axis)
		if n == 1 {
			continue
		}
		d := division{axis: axis, from: b.cuts[first], to: b.cuts[first+count], cuts: make([]int, n+1)}
		each := count / n
		for j := range d.cuts {
			d.cuts[j] = unit * (b.cuts[first+j*each] - d.from)
		}
		first, count = first+c.Rank(axis)*each, each
		d.low, d.high = b.cuts[first], b.cuts[first+count]
		all = append(all, d)
	}
	return all
}

// denseAxes are the axes over which ranks hold the same dense parameters, in the order of reduction; expertAxes those
// of an expert.
var (
	denseAxes  = []mesh.Axis{mesh.CP, mesh.DP}
	expertAxes = []mesh.Axis{mesh.EDP}
)

// newBuckets cuts a flat buffer into buckets of about size elements and each bucket into equal slices, as near as the
// borders of blocks allow. Without sharding a bucket is one slice that every rank has.
func newBuckets[T tensor.Float](f *nn.Flat[T], axes []mesh.Axis, l Layout) []*bucket[T] {
	parts, mine := 1, 0
	if l.Sharded {
		for _, a := range axes {
			parts, mine = parts*l.Sizes.Of(a), mine*l.Sizes.Of(a)+l.Sizes.Coord(l.Rank).Of(a)
		}
	}
	n := len(f.Grad)
	var all []*bucket[T]
	for from := 0; from < n; {
		limit, lowest := runOf(f, from, l.LayerOf)
		to := min(blockBorder(f, min(from+l.Bucket, n)), limit)
		if to <= from {
			to = min(blockBorder(f, min(from+l.Bucket+normBlock, n)), limit)
		}
		b := &bucket[T]{flat: f, axes: axes, mine: mine, cuts: make([]int, parts+1), lowest: lowest}
		b.cuts[0], b.cuts[parts] = from, to
		for i := 1; i < parts; i++ {
			b.cuts[i] = max(from, min(to, blockBorder(f, from+(to-from)*i/parts)))
		}
		for i := range parts {
			b.length = max(b.length, b.cuts[i+1]-b.cuts[i])
		}
		all = append(all, b)
		from = to
	}
	return all
}

// blockBorder is the border of a norm block that is nearest to a place in a flat buffer. It never falls as at rises.
func blockBorder[T tensor.Float](f *nn.Flat[T], at int) int {
	start := 0
	for _, q := range f.Params {
		end := start + len(q.Data)
		if at <= end {
			low := start + (at-start)/normBlock*normBlock
			high := min(low+normBlock, end)
			if at-low <= high-at {
				return low
			}
			return high
		}
		start = end
	}
	return start
}

// eachOwn calls f for every parameter of which this rank's slice has a part: elements [from, to) of its shard.
func (b *bucket[T]) eachOwn(f func(q *nn.Param[T], from, to int)) {
	low, high := b.own()
	start := 0
	for _, q := range b.flat.Params {
		from, to := max(low-start, 0), min(high-start, len(q.Data))
		if from < to {
			f(q, from, to)
		}
		start += len(q.Data)
	}
}

// runOf is where the run of parameters ends that a place in a flat buffer is in, decoder layers or others, and the layer of
// the parameter there: the lowest from there on, since layers are declared in ascending order.
func runOf[T tensor.Float](f *nn.Flat[T], at int, layerOf func(*nn.Spec) int) (end, lowest int) {
	if layerOf == nil {
		return len(f.Grad), -1
	}
	start := 0
	for i, q := range f.Params {
		if start += len(q.Data); start <= at {
			continue
		}
		lowest = layerOf(&q.Spec)
		for _, next := range f.Params[i+1:] {
			if layerOf(&next.Spec) >= 0 != (lowest >= 0) {
				break
			}
			start += len(next.Data)
		}
		return start, lowest
	}
	return start, -1
}
