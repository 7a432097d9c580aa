package collective

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/internal/inproc/property"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/tensor"
)

// parts is a random exchange of a group: elements[i][j] go from member i to member j, −1: no part.
type parts struct {
	dtype    tensor.DType
	elements [][]int
	seed     uint64
}

// drawParts draws an exchange; some members send or get nothing, some parts are empty.
func drawParts(t *rapid.T, size int) parts {
	p := parts{dtype: rapid.SampledFrom(dtypes).Draw(t, "dtype"), seed: rapid.Uint64().Draw(t, "seed")}
	of := rapid.SampledFrom([]int{-1, -1, 0, 1, 2, 7, 100})
	for i := range size {
		p.elements = append(p.elements, make([]int, size))
		for j := range size {
			p.elements[i][j] = of.Draw(t, "elements")
			if i == j {
				p.elements[i][j] = -1
			}
		}
	}
	return p
}

// payload is what member i sends to member j.
func (p parts) payload(i, j int) []byte {
	return value(p.dtype, p.elements[i][j], i*len(p.elements)+j, p.seed)
}

// op is the operation of member j, its parts in an order of its own, and what Out must be.
func (p parts) op(a mesh.Axis, s nn.Site, j int) (op *nn.Op, want []byte) {
	op = &nn.Op{Axis: a, Kind: nn.Exchange, DType: p.dtype, Tag: nn.TagRollIDs, Site: s}
	rng := rand.New(rand.NewPCG(p.seed, uint64(j)))
	for _, m := range rng.Perm(len(p.elements)) {
		if p.elements[j][m] >= 0 {
			b := p.payload(j, m)
			op.To, op.In = append(op.To, nn.Part{Member: m, Bytes: len(b)}), append(op.In, b...)
		}
	}
	for _, m := range rng.Perm(len(p.elements)) {
		if p.elements[m][j] >= 0 {
			b := p.payload(m, j)
			op.From, want = append(op.From, nn.Part{Member: m, Bytes: len(b)}), append(want, b...)
		}
	}
	op.Out = bytes.Repeat([]byte{0xAA}, len(want))
	return op, want
}

func (p parts) run(c nn.Comm, a mesh.Axis, s nn.Site) {
	op, want := p.op(a, s, c.Rank(a))
	in := slices.Clone(op.In)
	c.Do(op)
	if !bytes.Equal(op.Out, want) {
		panic(fmt.Sprintf("%s: got %x, want %x", op, op.Out, want))
	}
	if !bytes.Equal(op.In, in) {
		panic(fmt.Sprintf("%s: In was changed", op))
	}
}

// Random parts between reductions, several programs and axes, any order of delivery: every part arrives whole, in its
// place, once. A member that gets nothing runs ahead, so that its messages come early elsewhere.
func TestExchangesAgainstOracle(t *testing.T) {
	property.Check(t, 200, func(t *rapid.T) {
		s := mesh.Sizes{TP: rapid.IntRange(1, 2).Draw(t, "tp"), CP: rapid.IntRange(1, 5).Draw(t, "cp"), DP: 1, PP: 1}
		type act struct {
			parts *parts
			job   job
			axis  mesh.Axis
		}
		programs := make([][]act, rapid.IntRange(1, 3).Draw(t, "programs"))
		messages := 0
		for p := range programs {
			for range rapid.IntRange(1, 6).Draw(t, "acts") {
				a := act{axis: rapid.SampledFrom([]mesh.Axis{mesh.CP, mesh.CP, mesh.TP}).Draw(t, "axis")}
				if rapid.IntRange(0, 3).Draw(t, "reduces") == 0 {
					a.job = drawJob(t)
					messages += s.World() * (s.Of(a.axis) - 1)
				} else {
					p := drawParts(t, s.Of(a.axis))
					a.parts = &p
					for _, n := range slices.Concat(p.elements...) {
						if n >= 0 {
							messages += s.World() / s.Of(a.axis)
						}
					}
				}
				programs[p] = append(programs[p], a)
			}
		}
		w := newWorld(s, func(int) []func(nn.Comm) {
			all := make([]func(nn.Comm), len(programs))
			for p := range all {
				all[p] = func(c nn.Comm) {
					for i, a := range programs[p] {
						site := nn.Site{Step: i, Phase: nn.Forward, Depth: p, Layer: -1}
						if a.parts != nil {
							a.parts.run(c, a.axis, site)
						} else {
							a.job.run(c, a.axis, site)
						}
					}
				}
			}
			return all
		})
		w.anyOrder, w.mangle = rapid.Bool().Draw(t, "any order"), rapid.Bool().Draw(t, "mangle")
		w.run(pickOf(t))
		require.NoError(t, w.err)
		require.True(t, w.allDone(), "%v", w.statuses())
		require.Equal(t, messages, w.sent, "one message a part")
		require.Equal(t, w.sent, w.released, "every message is released once")
	})
}

// Group.Counts counts an exchange once and the bytes of its parts where they leave.
func TestExchangeIsCounted(t *testing.T) {
	p := parts{dtype: tensor.I32, elements: [][]int{{-1, 3, -1}, {2, -1, 0}, {-1, -1, -1}}}
	w := cpWorld(3, func(c nn.Comm) { p.run(c, mesh.CP, site(0, 0)) })
	w.run(func(int) int { return 0 })
	require.NoError(t, w.err)
	var all [][]OpCount
	for r := range 3 {
		all = append(all, w.ranks[r].groups[mesh.CP].Counts())
	}
	require.Equal(t, []OpCount{{Axis: mesh.CP, Tag: nn.TagRollIDs, Kind: nn.Exchange, Count: 1, Bytes: 20}}, SumCounts(all...))
}

func cpWorld(n int, programs ...func(c nn.Comm)) *world {
	return newWorld(mesh.Sizes{TP: 1, CP: n, DP: 1, PP: 1}, func(int) []func(nn.Comm) { return programs })
}

func TestWrongPartsAreOpErrors(t *testing.T) {
	type part = [2]int // member, bytes
	type list = []part
	parts := func(l list) (out []nn.Part) {
		for _, p := range l {
			out = append(out, nn.Part{Member: p[0], Bytes: p[1]})
		}
		return out
	}
	for _, c := range []struct {
		to, from list
		in, out  int
		want     string
	}{
		{to: list{{1, 4}}, in: 8, want: "the parts of In have 4 bytes, it has 8"},
		{from: list{{1, 4}, {2, 4}}, out: 4, want: "the parts of Out have 8 bytes, it has 4"},
		{in: 4, want: "the parts of In have 0 bytes, it has 4"},
		{to: list{{0, 4}}, in: 4, want: "a part of In is 4 bytes of member 0"},
		{to: list{{3, 4}}, in: 4, want: "a part of In is 4 bytes of member 3"},
		{from: list{{-1, 4}}, out: 4, want: "a part of Out is 4 bytes of member -1"},
		{to: list{{1, 4}, {1, 4}}, in: 8, want: "a part of In is 4 bytes of member 1"},
		{to: list{{1, 0}, {1, 4}}, in: 4, want: "a part of In is 4 bytes of member 1"},
		{to: list{{1, -4}, {2, 8}}, in: 4, want: "a part of In is -4 bytes of member 1"},
		{to: list{{1, 2}, {2, 2}}, in: 4, want: "a part of In is 2 bytes of member 1"},
		{to: list{{1, 4}}, in: 6, want: "In has 6 and Out 0 bytes"},
	} {
		op := &nn.Op{Axis: mesh.CP, Kind: nn.Exchange, DType: tensor.I32, Tag: nn.TagRollIDs, Site: site(0, 0),
			To: parts(c.to), From: parts(c.from), In: make([]byte, c.in), Out: make([]byte, c.out)}
		var e *OpError
		require.ErrorAs(t, CheckOp(op, 3, 0), &e, "%v", c)
		require.Contains(t, e.Problem, c.want)
	}
}

// swap does one exchange of int32 elements, to and from being elements by member.
func swap(c nn.Comm, step int, to, from map[int]int) {
	op := &nn.Op{Axis: mesh.CP, Kind: nn.Exchange, DType: tensor.I32, Tag: nn.TagRollIDs, Site: site(step, 0)}
	for m := range c.Size(mesh.CP) {
		if n, ok := to[m]; ok {
			op.To, op.In = append(op.To, nn.Part{Member: m, Bytes: 4 * n}), append(op.In, make([]byte, 4*n)...)
		}
		if n, ok := from[m]; ok {
			op.From, op.Out = append(op.From, nn.Part{Member: m, Bytes: 4 * n}), append(op.Out, make([]byte, 4*n)...)
		}
	}
	c.Do(op)
}

// orders runs a world in many orders and calls check with each outcome: every order must have one.
func orders(t *testing.T, start func() *world, check func(t require.TestingT, w *world)) {
	t.Helper()
	for seed := range uint64(50) {
		w := start()
		w.run(rand.New(rand.NewPCG(seed, 1)).IntN)
		check(t, w)
		w.stop()
	}
}

func TestPartOfTheWrongSizeIsAnError(t *testing.T) {
	orders(t, func() *world {
		return cpWorld(2, func(c nn.Comm) {
			if c.Rank(mesh.CP) == 0 {
				swap(c, 0, map[int]int{1: 3}, nil)
			} else {
				swap(c, 0, nil, map[int]int{0: 2})
			}
		})
	}, func(t require.TestingT, w *world) {
		var e *PayloadError
		require.ErrorAs(t, w.err, &e)
		require.Equal(t, []int{12, 8}, []int{e.Found, e.Want})
	})
}

// Member 0 sends member 2 a part that it does not expect, while it waits for one of member 1.
func TestUnexpectedPartIsAnErrorWhileOthersAreAwaited(t *testing.T) {
	orders(t, func() *world {
		return cpWorld(3, func(c nn.Comm) {
			switch c.Rank(mesh.CP) {
			case 0:
				swap(c, 0, map[int]int{2: 1}, nil)
			case 2:
				swap(c, 0, nil, map[int]int{1: 1})
			}
		})
	}, func(t require.TestingT, w *world) {
		var e *PayloadError
		require.ErrorAs(t, w.err, &e)
	})
}

// The same where the receiver waits for nothing: it has gone on when the part comes.
func TestUnexpectedPartIsAnErrorAfterwards(t *testing.T) {
	orders(t, func() *world {
		return cpWorld(2, func(c nn.Comm) {
			if c.Rank(mesh.CP) == 0 {
				swap(c, 0, map[int]int{1: 1}, nil)
			} else {
				swap(c, 0, nil, nil)
			}
		})
	}, func(t require.TestingT, w *world) {
		var e *PayloadError
		require.ErrorAs(t, w.err, &e)
		require.Equal(t, []int{4, -1}, []int{e.Found, e.Want})
		require.ErrorContains(t, w.err, "asked for nothing of that rank")
	})
}

// The same where the receiver has forgotten which operation that was.
func TestUnexpectedPartLongAfterwards(t *testing.T) {
	g := NewGroup(Place{Sizes: mesh.Sizes{TP: 1, CP: 2, DP: 1, EP: 1, ETP: 1, PP: 1}}, mesh.CP)
	op := func(i int) *nn.Op {
		return &nn.Op{Axis: mesh.CP, Kind: nn.Exchange, DType: tensor.I32, Tag: nn.TagRollIDs, Site: site(0, i)}
	}
	for i := range rememberMax + 1 {
		_, done, err := g.Begin(0, op(i))
		require.NoError(t, err)
		require.NotNil(t, done)
	}
	late := func(seq int) error {
		h := NameOf(op(seq)).header(0, 0)
		h.Src, h.Seq = 1, uint64(seq)
		_, _, err := g.Deliver(h, make([]byte, 4))
		return err
	}
	var e *LateError
	require.ErrorAs(t, late(0), &e)
	require.Equal(t, []uint64{0, rememberMax + 1}, []uint64{e.Seq, e.Next})
	var known *PayloadError
	require.ErrorAs(t, late(1), &known)
}

// A part that somebody waits for and nobody sends is a standstill that names both.
func TestMissingPartIsDiagnosed(t *testing.T) {
	orders(t, func() *world {
		return cpWorld(2, func(c nn.Comm) {
			if c.Rank(mesh.CP) == 0 {
				swap(c, 0, nil, nil)
			} else {
				swap(c, 0, nil, map[int]int{0: 1})
			}
		})
	}, func(t require.TestingT, w *world) {
		require.NoError(t, w.err)
		require.Contains(t, Diagnose(w.statuses()), "rank 1 waits in cp exchange roll.input_ids")
		require.Contains(t, Diagnose(w.statuses()), "rank 0 has finished its program")
	})
}

// Two members that do not agree on the operation: an exchange with parts both ways against other operations.
func TestExchangeAgainstAnotherOperation(t *testing.T) {
	sum := func(c nn.Comm) {
		b := make([]byte, 8)
		c.Do(&nn.Op{Axis: mesh.CP, Kind: nn.AllReduce, DType: tensor.I32, Tag: nn.TagRollIDs, Site: site(0, 0), In: b, Out: b})
	}
	both := map[int]int{0: 2, 1: 2}
	other := func(m int) map[int]int { return map[int]int{m: both[m]} }
	for name, theirs := range map[string]func(c nn.Comm){
		"all_reduce": sum,
		"exchange of another place": func(c nn.Comm) {
			swap(c, 1, other(0), other(0))
		},
		"exchange of another type": func(c nn.Comm) {
			c.Do(&nn.Op{Axis: mesh.CP, Kind: nn.Exchange, DType: tensor.F32, Tag: nn.TagRollIDs, Site: site(0, 0),
				To: []nn.Part{{Member: 0, Bytes: 8}}, From: []nn.Part{{Member: 0, Bytes: 8}}, In: make([]byte, 8), Out: make([]byte, 8)})
		},
		"exchange for another purpose": func(c nn.Comm) {
			c.Do(&nn.Op{Axis: mesh.CP, Kind: nn.Exchange, DType: tensor.I32, Tag: nn.TagRollLabels, Site: site(0, 0),
				To: []nn.Part{{Member: 0, Bytes: 8}}, From: []nn.Part{{Member: 0, Bytes: 8}}, In: make([]byte, 8), Out: make([]byte, 8)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			orders(t, func() *world {
				return cpWorld(2, func(c nn.Comm) {
					if c.Rank(mesh.CP) == 0 {
						swap(c, 0, other(1), other(1))
					} else {
						theirs(c)
					}
				})
			}, func(t require.TestingT, w *world) {
				var e *MismatchError
				require.ErrorAs(t, w.err, &e)
			})
		})
	}
}

// An exchange without parts against a sum: the member of the exchange has gone on when the other's message comes.
func TestExchangeWithoutPartsAgainstAnotherOperation(t *testing.T) {
	orders(t, func() *world {
		return cpWorld(2, func(c nn.Comm) {
			if c.Rank(mesh.CP) == 0 {
				swap(c, 0, nil, nil)
			} else {
				b := make([]byte, 8)
				c.Do(&nn.Op{Axis: mesh.CP, Kind: nn.AllReduce, DType: tensor.I32, Tag: nn.TagRollIDs, Site: site(0, 0), In: b, Out: b})
			}
		})
	}, func(t require.TestingT, w *world) {
		var e *MismatchError
		require.ErrorAs(t, w.err, &e)
		require.ElementsMatch(t, []nn.OpKind{nn.Exchange, nn.AllReduce}, []nn.OpKind{e.Ours.Kind, e.Theirs.Kind})
	})
}

// A member that only sends is bounded by AheadMax early messages.
func TestOneWayExchangesAreBounded(t *testing.T) {
	for _, n := range []int{AheadMax, AheadMax + 1} {
		w := cpWorld(2, func(c nn.Comm) {
			for i := range n {
				if c.Rank(mesh.CP) == 0 {
					swap(c, i, map[int]int{1: 1}, nil)
				}
			}
			if c.Rank(mesh.CP) == 1 {
				c.Recv(0, "never")
			}
		})
		w.run(func(int) int { return 0 })
		var e *AheadError
		if n > AheadMax {
			require.ErrorAs(t, w.err, &e)
		} else {
			require.NoError(t, w.err)
		}
		w.stop()
	}
}

// Cuts that are not those of the whole value are the program's fault, and said.
func TestWrongCutsAreOpErrors(t *testing.T) {
	for _, c := range []struct {
		kind nn.OpKind
		out  int
		cuts []int
		want string
	}{
		{nn.ReduceScatter, 8, []int{0, 8, 12, 24}, ""},
		{nn.ReduceScatter, 4, []int{0, 8, 12, 24}, "Out has 4 bytes, expected 8: member 0 of 3"},
		{nn.ReduceScatter, 8, []int{0, 8, 24}, "expected 4 from 0 to 24 bytes"},
		{nn.ReduceScatter, 8, []int{4, 8, 12, 24}, "expected 4 from 0 to 24 bytes"},
		{nn.ReduceScatter, 8, []int{0, 8, 12, 20}, "expected 4 from 0 to 24 bytes"},
		{nn.ReduceScatter, 8, []int{0, 8, 4, 24}, "cut 2 is 4 bytes"},
		{nn.ReduceScatter, 6, []int{0, 6, 12, 24}, "In has 24 and Out 6 bytes, expected multiples of 4"},
		{nn.ReduceScatter, 8, []int{0, 8, 14, 24}, "cut 2 is 14 bytes, expected a multiple of 4"},
		{nn.AllReduce, 24, []int{0, 8, 12, 24}, "it has cuts"},
		{nn.AllGather, 48, []int{0, 24, 24, 48}, ""},
		{nn.AllGather, 48, []int{0, 24, 24, 24}, "expected 4 from 0 to 48 bytes"},
	} {
		op := &nn.Op{Kind: c.kind, DType: tensor.F32, Tag: nn.TagGradient, Site: site(0, 0), In: make([]byte, 24), Out: make([]byte, c.out), Cuts: c.cuts}
		err := CheckOp(op, 3, 0)
		if c.want == "" {
			require.NoError(t, err, "%v", c)
			continue
		}
		var e *OpError
		require.ErrorAs(t, err, &e, "%v", c)
		require.Contains(t, e.Problem, c.want)
	}
}
