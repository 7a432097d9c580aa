package collective

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

// job is one random operation and what it must give.
type job struct {
	kind  nn.OpKind
	how   nn.ReduceKind
	dtype tensor.DType
	n     int // elements of the whole value
	alias bool
	cut   bool // at random places
	seed  uint64
}

func drawJob(t *rapid.T) job {
	j := job{
		kind: rapid.SampledFrom([]nn.OpKind{nn.AllReduce, nn.ReduceScatter, nn.AllGather}).Draw(t, "kind"),
		how:  rapid.SampledFrom([]nn.ReduceKind{nn.Sum, nn.Max}).Draw(t, "how"), dtype: rapid.SampledFrom(dtypes).Draw(t, "dtype"),
		n: rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 17, 64, 100}).Draw(t, "n"), alias: rapid.Bool().Draw(t, "alias"), cut: rapid.Bool().Draw(t, "cut"), seed: rapid.Uint64().Draw(t, "seed"),
	}
	if !reducible(j.dtype, j.how) {
		j.how = nn.Max
	}
	return j
}

// op is the operation for member j of size, and want what Out must be.
func (b job) op(a mesh.Axis, s nn.Site, size, j int) (op *nn.Op, want []byte) {
	values := make([][]byte, size)
	for m := range values {
		values[m] = value(b.dtype, b.n, m, b.seed)
	}
	op = &nn.Op{Axis: a, Kind: b.kind, Reduce: b.how, DType: b.dtype, Tag: nn.TagGradient, Site: s, Cuts: b.cuts(size)}
	from, to := piece(op.Cuts, b.n*b.dtype.Size(), b.dtype.Size(), size, j)
	switch b.kind {
	case nn.AllReduce:
		op.In, want = values[j], oracle(b.dtype, b.how, values)
	case nn.ReduceScatter:
		op.In, want = values[j], oracle(b.dtype, b.how, values)[from:to]
	case nn.AllGather:
		want = value(b.dtype, b.n, 99, b.seed)
		op.In = append([]byte{}, want[from:to]...)
	}
	op.Out = bytes.Repeat([]byte{0xAA}, len(want))
	switch {
	case b.alias && b.kind == nn.AllReduce:
		op.Out = op.In
	case b.alias && b.kind == nn.ReduceScatter:
		op.Out = op.In[from:to:to]
	case b.alias:
		copy(op.Out[from:to], op.In)
		op.In = op.Out[from:to:to]
	}
	return op, want
}

// cuts are the bytes at which the pieces of a value begin, the same at every member, and its end; nil: equal pieces.
func (b job) cuts(size int) []int {
	if !b.cut || b.kind == nn.AllReduce {
		return nil
	}
	draw := rand.New(rand.NewPCG(b.seed, 7))
	cuts := make([]int, size+1)
	for j := range size - 1 {
		cuts[j+1] = draw.IntN(b.n+1) * b.dtype.Size()
	}
	cuts[size] = b.n * b.dtype.Size()
	slices.Sort(cuts)
	return cuts
}

// run does the operation and compares; In must be as before, unless it is Out.
func (b job) run(c nn.Comm, a mesh.Axis, s nn.Site) {
	op, want := b.op(a, s, c.Size(a), c.Rank(a))
	in := append([]byte{}, op.In...)
	c.Do(op)
	if !bytes.Equal(op.Out, want) {
		panic(fmt.Sprintf("%s: got %x, want %x", op, op.Out, want))
	}
	if !b.alias && !bytes.Equal(op.In, in) {
		panic(fmt.Sprintf("%s: In was changed", op))
	}
}

// Random sizes, types, groups, delivery orders; several programs and axes at once; compared with a plain oracle.
func TestCollectivesAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mesh.Sizes{TP: rapid.IntRange(1, 5).Draw(t, "tp"), CP: rapid.IntRange(1, 2).Draw(t, "cp"), DP: rapid.IntRange(1, 2).Draw(t, "dp"), PP: 1}
		axes := []mesh.Axis{mesh.TP, mesh.CP, mesh.DP}
		programs := rapid.IntRange(1, 3).Draw(t, "programs")
		jobs := make([][]job, programs)
		where := make([][]mesh.Axis, programs)
		for p := range jobs {
			jobs[p] = rapid.SliceOfN(rapid.Custom(drawJob), 1, 6).Draw(t, "jobs")
			where[p] = rapid.SliceOfN(rapid.SampledFrom(axes), len(jobs[p]), len(jobs[p])).Draw(t, "axes")
		}
		w := newWorld(s, func(int) []func(nn.Comm) {
			all := make([]func(nn.Comm), programs)
			for p := range all {
				all[p] = func(c nn.Comm) {
					for i, b := range jobs[p] {
						b.run(c, where[p][i], nn.Site{Step: i, Phase: nn.Forward, Depth: p, Layer: -1})
					}
				}
			}
			return all
		})
		small := rapid.SampledFrom([]int{0, 16, SmallBytes}).Draw(t, "small")
		w.each(func(g *Group) { g.small = small })
		w.anyOrder, w.mangle = rapid.Bool().Draw(t, "any order"), rapid.Bool().Draw(t, "mangle")
		w.run(pickOf(t))
		require.NoError(t, w.err)
		require.True(t, w.allDone(), "%v", w.statuses())
		require.Equal(t, w.sent, w.released, "every message is released once")
	})
}

// One round and two rounds, any order of arrival: the same bits, also where addition order matters.
func TestRoundsGiveTheSameBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 5).Draw(t, "size")
		b := rapid.Custom(drawJob).Draw(t, "job")
		b.kind = nn.AllReduce
		var results [2][][]byte
		for i, small := range []int{0, math.MaxInt} {
			out := make([][]byte, size)
			w := newWorld(mesh.Sizes{TP: size, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
				return []func(nn.Comm){func(c nn.Comm) {
					op, _ := b.op(mesh.TP, site(0, 0), size, rank)
					c.Do(op)
					out[rank] = op.Out
				}}
			})
			w.each(func(g *Group) { g.small = small })
			w.run(pickOf(t))
			require.NoError(t, w.err)
			for _, o := range out {
				require.Equal(t, out[0], o)
			}
			results[i] = out
		}
		require.Equal(t, results[0], results[1])
	})
}

// TestDepthChain is the traffic of a rank with depths: 0 → 1 → 2 → 0 within a rank, collectives of the depths on tp meanwhile.
func TestDepthChain(t *testing.T) {
	const depths, steps = 3, 4
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
			programs := []func(nn.Comm){func(c nn.Comm) {
				for s := range steps {
					c.Send(1, "set", []int{s})
					for k := 1; k <= depths; k++ {
						sum := c.Recv(nn.Program(k), "loss").(float32)
						if want := float32(2*(10*s+k) + 1); sum != want {
							panic(fmt.Sprint(sum, want))
						}
					}
				}
			}}
			for k := 1; k <= depths; k++ {
				programs = append(programs, func(c nn.Comm) {
					for s := range steps {
						set := c.Recv(nn.Program(k-1), "set").([]int)
						if k < depths {
							c.Send(nn.Program(k+1), "set", append(set, s))
						}
						x := []float32{float32(10*set[0] + k + c.Rank(mesh.TP))}
						c.Do(allReduce(mesh.TP, nn.TagVocabSum, nn.Site{Step: s, Phase: nn.Forward, Depth: k, Layer: -1}, x))
						c.Send(0, "loss", x[0])
					}
				})
			}
			return programs
		})
		w.run(pickOf(t))
		require.NoError(t, w.err)
		require.True(t, w.allDone())
	})
}

func pair() (*Group, *Group) {
	return NewGroup(at(2, 1, 1, 0), mesh.TP), NewGroup(at(2, 1, 1, 1), mesh.TP)
}

func TestMismatchIsSeenOnBothSidesAndInBothOrders(t *testing.T) {
	base := func() *nn.Op { return allReduce(mesh.TP, nn.TagRowOutput, site(3, 1), make([]float32, 1024)) }
	for name, change := range map[string]func(*nn.Op){
		"kind":       func(op *nn.Op) { op.Kind, op.In = nn.AllGather, op.In[:2048] },
		"reduce":     func(op *nn.Op) { op.Reduce = nn.Max },
		"tag":        func(op *nn.Op) { op.Tag = nn.TagGradient },
		"size":       func(op *nn.Op) { op.In, op.Out = op.In[:4092], op.Out[:4092] },
		"rounds":     func(op *nn.Op) { *op = *allReduce(mesh.TP, nn.TagRowOutput, site(3, 1), make([]float32, SmallBytes)) },
		"dtype":      func(op *nn.Op) { op.DType = tensor.I32 },
		"step":       func(op *nn.Op) { op.Site.Step++ },
		"microbatch": func(op *nn.Op) { op.Site.Microbatch++ },
		"layer":      func(op *nn.Op) { op.Site.Layer = -1 },
		"phase":      func(op *nn.Op) { op.Site.Phase = nn.Backward },
		"depth":      func(op *nn.Op) { op.Site.Depth = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair()
			other := base()
			change(other)
			outA, _, err := a.Begin(0, base())
			require.NoError(t, err)
			outB, _, err := b.Begin(0, other)
			require.NoError(t, err)

			_, _, err = a.Deliver(outB[0].Header, outB[0].Payload) // a is in its operation
			var m *MismatchError
			require.ErrorAs(t, err, &m)
			require.Equal(t, NameOf(base()), m.Ours)
			require.Equal(t, NameOf(other), m.Theirs)

			_, late := pair()
			_, _, err = late.Deliver(outA[0].Header, outA[0].Payload) // the message is there first
			require.NoError(t, err)
			_, _, err = late.Begin(0, other)
			require.ErrorAs(t, err, &m)
			require.Equal(t, 1, m.Self.Rank)
			require.Equal(t, NameOf(other), m.Ours)
		})
	}
}

func TestMismatchInWords(t *testing.T) {
	a, b := pair()
	_, _, err := a.Begin(0, allReduce(mesh.TP, nn.TagRowOutput, site(3, 1), make([]float32, 1024)))
	require.NoError(t, err)
	x := make([]float32, 2)
	out, _, err := b.Begin(0, &nn.Op{Axis: mesh.TP, Kind: nn.AllGather, DType: tensor.F32, Tag: nn.TagMaskGather,
		Site: nn.Site{Step: 3, Phase: nn.Forward, Layer: -1}, In: tensor.Bytes(x[:1]), Out: tensor.Bytes(x)})
	require.NoError(t, err)
	_, _, err = a.Deliver(out[0].Header, out[0].Payload)
	require.EqualError(t, err, "rank 0 (tp 0) is in tp all_reduce sum row_output F32[1024] at step 3 microbatch 0 forward layer 1; "+
		"rank 1 (tp 1) sent tp all_gather sum mask_allgather F32[2] at step 3 microbatch 0 forward; "+
		"program stage must call the same operations in the same order on every member")
}

func TestDuplicates(t *testing.T) {
	a, b := pair()
	first := allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1, 2})
	out, _, err := b.Begin(0, allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{3, 4}))
	require.NoError(t, err)
	m := out[0]
	again := bytes.Clone(m.Payload)
	for range 2 { // before the operation has begun
		_, _, err = a.Deliver(m.Header, bytes.Clone(again))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, a.Dropped())
	_, done, err := a.Begin(0, first)
	require.NoError(t, err)
	require.Equal(t, &Completion{0, first}, done)
	require.Equal(t, tensor.Bytes([]float32{4, 6}), first.Out)
	_, more, err := a.Deliver(m.Header, bytes.Clone(again)) // after it has ended
	require.NoError(t, err)
	require.Empty(t, more)
	require.EqualValues(t, 2, a.Dropped())
	require.EqualValues(t, 3, a.Received())

	again[0] ^= 1
	_, _, err = a.Deliver(m.Header, again)
	var d *DivergenceError
	require.ErrorAs(t, err, &d)
	require.ErrorContains(t, err, "rank 0 (tp 0) got message 0 of tp all_reduce sum flags F32[2] at step 0 microbatch 0 forward layer 0 from rank 1 (tp 1) twice: first 8 bytes with crc")
}

func TestEarlyMessagesAreKeptUpToALimit(t *testing.T) {
	a, b := pair()
	var ahead []Outgoing
	for i := range AheadMax + 1 {
		out, _, err := b.Begin(0, allReduce(mesh.TP, nn.TagFlags, site(i, 0), []float32{float32(i)}))
		require.NoError(t, err)
		ahead = append(ahead, out...)
		b.channels[0].op = nil // a peer that waits for nobody
	}
	for _, m := range ahead[:AheadMax] {
		_, _, err := a.Deliver(m.Header, m.Payload)
		require.NoError(t, err)
	}
	for i := range AheadMax {
		op := allReduce(mesh.TP, nn.TagFlags, site(i, 0), []float32{1})
		_, done, err := a.Begin(0, op)
		require.NoError(t, err)
		require.NotNil(t, done)
		require.Equal(t, tensor.Bytes([]float32{float32(i + 1)}), op.Out)
	}
	c := NewGroup(at(2, 1, 1, 0), mesh.TP)
	for i, m := range ahead {
		_, _, err := c.Deliver(m.Header, bytes.Clone(m.Payload))
		if i < AheadMax {
			require.NoError(t, err)
			continue
		}
		var tooFar *AheadError
		require.ErrorAs(t, err, &tooFar)
		require.Equal(t, AheadMax, tooFar.Limit)
	}
}

func TestWrongMessagesAreRefused(t *testing.T) {
	a, b := pair()
	out, _, _ := b.Begin(0, allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1}))
	_, _, _ = a.Begin(0, allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1}))
	for _, change := range []func(*messages.Header){
		func(h *messages.Header) { h.Src = 0 },
		func(h *messages.Header) { h.Src = 7 },
		func(h *messages.Header) { h.Dst = 1 },
		func(h *messages.Header) { h.Chan = Channel(mesh.DP, 0) },
	} {
		h := out[0].Header
		change(&h)
		_, _, err := a.Deliver(h, nil)
		var wrong *AddressError
		require.ErrorAs(t, err, &wrong)
	}
	_, _, err := a.Deliver(out[0].Header, make([]byte, 8))
	require.EqualError(t, err, "rank 0 (tp 0) got 8 bytes from rank 1 (tp 1) for tp all_reduce sum flags F32[1] at step 0 microbatch 0 forward layer 0, expected 4")
}

func TestBeginRefusesTheProgramsFaults(t *testing.T) {
	a, _ := pair()
	op := allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1})
	_, _, err := a.Begin(0, op)
	require.NoError(t, err)
	_, _, err = a.Begin(0, op)
	require.ErrorContains(t, err, "program stage of rank 0 (tp 0) is still in tp all_reduce sum flags")
	_, _, err = a.Begin(1, allReduce(mesh.DP, nn.TagFlags, site(0, 0), nil))
	require.ErrorContains(t, err, "it came to the tp group of rank 0 (tp 0)")
	_, _, err = a.Begin(1, &nn.Op{Axis: mesh.TP})
	require.ErrorContains(t, err, "kind 0 is unknown")
}

func TestHeaderCarriesTheName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := OpName{
			Axis: mesh.Axis(rapid.IntRange(0, 4).Draw(t, "axis")), Kind: nn.OpKind(rapid.IntRange(1, 3).Draw(t, "kind")),
			Reduce: nn.ReduceKind(rapid.IntRange(0, 1).Draw(t, "reduce")), Tag: nn.Tag(rapid.IntRange(1, tagMax).Draw(t, "tag")),
			DType: rapid.SampledFrom(dtypes).Draw(t, "dtype"), Elements: rapid.IntRange(0, math.MaxUint32).Draw(t, "elements"),
			Site: nn.Site{Step: rapid.IntRange(0, math.MaxUint32).Draw(t, "step"), Microbatch: rapid.IntRange(0, math.MaxUint16).Draw(t, "mb"),
				Phase: nn.Phase(rapid.IntRange(1, phaseMax).Draw(t, "phase")), Depth: rapid.IntRange(0, depthMax).Draw(t, "depth"),
				Layer: rapid.IntRange(-1, messages.NoLayer-1).Draw(t, "layer")},
		}
		round, p := rapid.IntRange(0, 1).Draw(t, "round"), nn.Program(rapid.IntRange(0, 255).Draw(t, "program"))
		h := n.header(p, round)
		require.Equal(t, n, NameIn(h))
		require.Equal(t, round, roundIn(h))
		require.Equal(t, Channel(n.Axis, p), h.Chan)
	})
}

func TestSeqIsDensePerChannel(t *testing.T) {
	w := newWorld(mesh.Sizes{TP: 3, CP: 1, DP: 1, PP: 1}, func(int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			for i, n := range []int{1, SmallBytes, 0, SmallBytes, 2} { // one and two rounds
				c.Do(allReduce(mesh.TP, nn.TagFlags, site(i, 0), make([]float32, n)))
			}
		}}
	})
	next := map[edge]uint64{}
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[*byte]bool{}
	w.run(func(n int) int {
		for e, q := range w.queues {
			for _, m := range q {
				if m.Header.Seq == next[e] {
					next[e]++
				}
				require.Less(t, m.Header.Seq, next[e])
				if len(m.Payload) > 0 {
					seen[&m.Payload[0]] = true
				}
			}
		}
		return rng.IntN(n)
	})
	require.True(t, w.allDone())
	require.Len(t, next, 6)
	for e, n := range next {
		require.EqualValues(t, 7, n, "%v", e)
	}
}

func TestBuffersAreRecycled(t *testing.T) {
	a, b := pair()
	x, y := make([]float32, 4*SmallBytes), make([]float32, 4*SmallBytes)
	step := 0
	allocs := testing.AllocsPerRun(20, func() {
		exchangeOnce(t, a, b, allReduce(mesh.TP, nn.TagGradient, site(step, -1), x), allReduce(mesh.TP, nn.TagGradient, site(step, -1), y))
		step++
	})
	require.Less(t, allocs, 60.0)
	require.LessOrEqual(t, a.store.held, storeBytesMax)
	require.NotZero(t, a.store.held)
}

func recycle(g *Group) {
	for _, m := range g.Released() {
		g.Recycle(m.Payload)
	}
}

// exchangeOnce carries everything between two members until nothing is in flight.
func exchangeOnce(t testing.TB, a, b *Group, opA, opB *nn.Op) {
	outA, _, err := a.Begin(0, opA)
	require.NoError(t, err)
	outB, _, err := b.Begin(0, opB)
	require.NoError(t, err)
	for len(outA)+len(outB) > 0 {
		var nextA, nextB []Outgoing
		for _, m := range outA {
			more, _, err := b.Deliver(m.Header, m.Payload)
			require.NoError(t, err)
			recycle(b)
			nextB = append(nextB, more...)
		}
		for _, m := range outB {
			more, _, err := a.Deliver(m.Header, m.Payload)
			require.NoError(t, err)
			recycle(a)
			nextA = append(nextA, more...)
		}
		outA, outB = nextA, nextB
	}
}

func TestCounts(t *testing.T) {
	w := newWorld(mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}, func(int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			for i := range 3 {
				c.Do(allReduce(mesh.TP, nn.TagRowOutput, site(i, 0), make([]float32, 2)))
			}
			c.Do(allReduce(mesh.DP, nn.TagGradient, site(0, -1), make([]float32, SmallBytes)))
		}, func(c nn.Comm) {
			s := site(0, 0)
			s.Depth = 1
			c.Do(allReduce(mesh.TP, nn.TagRowOutput, s, make([]float32, 2)))
		}}
	})
	w.run(func(int) int { return 0 })
	require.True(t, w.allDone())
	var all [][]OpCount
	w.each(func(g *Group) { all = append(all, g.Counts()) })
	bytesDP := int64(2 * SmallBytes * 4) // each member: half a value out twice
	require.Equal(t, []OpCount{
		{mesh.TP, nn.TagRowOutput, nn.AllReduce, 0, 2 * 3, 4 * 3 * 8},
		{mesh.TP, nn.TagRowOutput, nn.AllReduce, 1, 2, 4 * 8},
		{mesh.DP, nn.TagGradient, nn.AllReduce, 0, 2, 2 * bytesDP},
	}, SumCounts(all...))
	require.Zero(t, w.ranks[1].groups[mesh.TP].Counts()[0].Count, "member 1 counts bytes only")
}

func TestMisalignedPayload(t *testing.T) {
	for _, self := range []int{0, 1, 2} {
		g := NewGroup(at(3, 1, 1, self), mesh.TP)
		op := allReduce(mesh.TP, nn.TagFlags, site(0, 0), []float32{1})
		_, _, err := g.Begin(0, op)
		require.NoError(t, err)
		for j := range 3 {
			if j == self {
				continue
			}
			h := NameOf(op).header(0, 0)
			h.Src, h.Dst = uint16(j), uint16(self)
			odd := append(make([]byte, 1, 16), tensor.Bytes([]float32{2})...)[1:]
			_, _, err := g.Deliver(h, odd)
			require.NoError(t, err)
		}
		require.Equal(t, tensor.Bytes([]float32{5}), op.Out)
	}
}

func TestStoreKeepsOnlyWhatItCanUse(t *testing.T) {
	var p store
	p.put(make([]byte, 200)[1:])
	p.put(make([]byte, 8))
	require.Zero(t, p.held)
	p.put(make([]byte, 3, 200))
	b := p.get(100)
	require.Equal(t, 200, cap(b))
	require.Zero(t, p.held)
	p.put(make([]byte, storeBytesMax+1))
	require.Zero(t, p.held)
	require.NotNil(t, p.get(0))
}

func TestMaxOfFloats(t *testing.T) {
	nan, negZero := float32(math.NaN()), math.Float32frombits(1<<31)
	acc := []float32{nan, 1, 0, negZero, math.Float32frombits(0x7f800001)}
	combine(tensor.Bytes(acc), tensor.Bytes(acc), tensor.Bytes([]float32{1, math.Float32frombits(0xffc00001), negZero, 0, 2}), tensor.F32, nn.Max)
	bits := make([]uint32, len(acc))
	for i, v := range acc {
		bits[i] = math.Float32bits(v)
	}
	require.Equal(t, []uint32{0x7fc00000, 0x7fc00000, 0, 0, 0x7fc00000}, bits)
}

// BenchmarkAllReduce is the machine's own cost: 4 members on one goroutine, no transport.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{256, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", n*4>>10), func(b *testing.B) {
			b.SetBytes(int64(n * 4))
			w := newWorld(mesh.Sizes{TP: 4, CP: 1, DP: 1, PP: 1}, func(int) []func(nn.Comm) {
				return []func(nn.Comm){func(c nn.Comm) {
					x := make([]float32, n)
					for i := range b.N {
						c.Do(allReduce(mesh.TP, nn.TagGradient, site(i, -1), x))
					}
				}}
			})
			b.ResetTimer()
			w.run(func(int) int { return 0 })
			require.NoError(b, w.err)
			require.True(b, w.allDone())
		})
	}
}
