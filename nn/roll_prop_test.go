package nn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/collective"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/property"
	"phalanx/internal/inproc/trial"
	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

// batch is the documents of rows over context-parallel ranks. Package trial knows where every position goes, by
// arithmetic of its own.
type batch struct {
	docs        nn.Docs
	b, s        int
	cp, align   int
	src         [][]int // by rank and slot: the position, −1: none
	l           int
	order, seed uint64
}

func drawBatch(t *rapid.T, sMax int) batch {
	d := batch{b: rapid.IntRange(1, 3).Draw(t, "rows"), s: rapid.IntRange(1, sMax).Draw(t, "positions"),
		cp: rapid.IntRange(1, 4).Draw(t, "cp"), align: rapid.IntRange(1, 4).Draw(t, "align"),
		order: rapid.Uint64().Draw(t, "order"), seed: rapid.Uint64().Draw(t, "seed")}
	if rapid.IntRange(0, 4).Draw(t, "one document a row") > 0 {
		d.docs = trial.DrawDocs(t, d.b, d.s)
		for row := range d.docs {
			if rapid.IntRange(0, 5).Draw(t, "unpacked row") == 0 {
				d.docs[row] = nil
			}
		}
	}
	d.src, d.l = trial.Slots(d.docs, d.b, d.s, d.cp, d.align)
	return d
}

// run runs one program on every rank, with a context of its own.
func (d batch) run(t require.TestingT, sent func(messages.Header, []byte), f func(c *nn.Ctx[float64], rank int)) {
	err := inproc.Run(mesh.Sizes{TP: 1, CP: d.cp, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			frames := nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align)
			f(&nn.Ctx[float64]{Comm: c, Arena: &tensor.Arena[float64]{}, B: d.b, Frame: frames[rank], Frames: frames, Scope: "test",
				Site: nn.Site{Phase: nn.Forward, Layer: -1}, Aux: nn.AuxScale{Divisor: 1}}, rank)
		}}
	}, inproc.Options{Seed: d.order, Sent: sent})
	require.NoError(t, err)
}

// traffic counts messages and bytes of one purpose by link.
type traffic map[[2]uint16][2]int

func (m traffic) of(tag nn.Tag) func(messages.Header, []byte) {
	return func(h messages.Header, payload []byte) {
		if collective.NameIn(h).Tag != tag {
			panic(fmt.Sprintf("a message for %s, expected only %s", collective.NameIn(h).Tag, tag))
		}
		n := m[[2]uint16{h.Src, h.Dst}]
		m[[2]uint16{h.Src, h.Dst}] = [2]int{n[0] + 1, n[1] + len(payload)}
	}
}

// neighbours is what may be sent: one message each way over every link, with all rows and documents.
func neighbours(cp, messages, bytes int) traffic {
	m := traffic{}
	for r := range uint16(cp - 1) {
		m[[2]uint16{r, r + 1}] = [2]int{messages, bytes}
		m[[2]uint16{r + 1, r}] = [2]int{messages, bytes}
	}
	return m
}

// rolls checks n successive rolls of [b, s, width] values against one gather, on every rank, with their messages.
func rolls[V tensor.Number](t *rapid.T, d batch, width, n int, value func(*rand.Rand) V) {
	whole := make([]V, d.b*d.s*width)
	rng := rand.New(rand.NewPCG(d.seed, 0))
	for i := range whole {
		whole[i] = value(rng)
	}
	joined := make([]V, len(whole)/width)
	sent := traffic{}
	d.run(t, sent.of(nn.TagRollIDs), func(c *nn.Ctx[float64], rank int) {
		x := trial.Local(d.src[rank], d.b, d.s, width, whole, 0)
		for k := 1; k <= n; k++ {
			before := slices.Clone(x)
			y := nn.RollSlots(c, x, width, nn.TagRollIDs)
			require.Equal(t, before, x, "a roll must not change its input")
			want := trial.Local(d.src[rank], d.b, d.s, width, trial.Rolled(d.docs, d.b, d.s, width, k, whole, 0), 0)
			require.Equal(t, want, y, "rank %d after %d rolls", rank, k)
			x = y
		}
		if width == 1 {
			nn.PutRows(c.Frame, x, joined)
		}
	})
	if width == 1 {
		require.Equal(t, trial.Rolled(d.docs, d.b, d.s, 1, n, whole, 0), joined)
	}
	bytes := trial.Links(d.docs, d.b, d.s) * width * int(unsafe.Sizeof(whole[0])) * n
	require.Equal(t, neighbours(d.cp, n, bytes), sent)
}

func TestI1_I2_RollsOverRanksAreOneGather(t *testing.T) {
	property.Check(t, 400, func(t *rapid.T) {
		d := drawBatch(t, 20)
		width, n := rapid.IntRange(1, 3).Draw(t, "width"), rapid.IntRange(1, 6).Draw(t, "rolls")
		switch rapid.IntRange(0, 3).Draw(t, "type") {
		case 0:
			rolls(t, d, width, n, func(r *rand.Rand) int32 { return int32(r.Uint32()) | 1 })
		case 1:
			rolls(t, d, width, n, func(r *rand.Rand) float32 { return 1 + r.Float32() })
		case 2:
			rolls(t, d, width, n, func(r *rand.Rand) float64 { return 1 + r.Float64() })
		case 3:
			rolls(t, d, width, n, func(r *rand.Rand) uint8 { return uint8(r.Uint32()) | 1 })
		}
	})
}

// Worked examples of rolls over zigzag ranks and packed documents.
func TestI1_WorkedExamples(t *testing.T) {
	for _, c := range []struct {
		docs        nn.Docs
		whole       []int32
		local, want [][]int32
	}{
		{nil, []int32{1, 2, 3, 4, 5, 6, 7, 8}, [][]int32{{1, 2, 7, 8}, {3, 4, 5, 6}}, [][]int32{{2, 3, 8, 0}, {4, 5, 6, 7}}},
		{nn.Docs{{{Start: 0, Logical: 8, Physical: 8}, {Start: 8, Logical: 12, Physical: 12}}},
			[]int32{1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22},
			[][]int32{{1, 2, 7, 8, 11, 12, 13, 20, 21, 22}, {3, 4, 5, 6, 14, 15, 16, 17, 18, 19}},
			[][]int32{{2, 3, 8, 0, 12, 13, 14, 21, 22, 0}, {4, 5, 6, 7, 15, 16, 17, 18, 19, 20}}},
	} {
		d := batch{docs: c.docs, b: 1, s: len(c.whole), cp: 2, align: 1}
		d.run(t, nil, func(ctx *nn.Ctx[float64], rank int) {
			x := nn.TakeRows(ctx.Frame, c.whole, -1)
			require.Equal(t, c.local[rank], x)
			require.Equal(t, c.want[rank], nn.RollSlots(ctx, x, 1, nn.TagRollIDs))
		})
	}
}

func TestAbsentTensorsSendNothing(t *testing.T) {
	d := batch{b: 2, s: 8, cp: 3, align: 1}
	sent := traffic{}
	d.run(t, sent.of(nn.TagRollIDs), func(c *nn.Ctx[float64], _ int) {
		require.Nil(t, nn.RollSlots[float64, int32](c, nil, 1, nn.TagRollIDs))
	})
	require.Empty(t, sent)
}

// Validity and the loss mask roll like numbers: what leaves a document, and what was inserted, is not valid and does
// not count; nothing becomes valid whose token was not.
func TestI5_MasksOverRanks(t *testing.T) {
	property.Check(t, 200, func(t *rapid.T) {
		d := drawBatch(t, 20)
		rng := rand.New(rand.NewPCG(d.seed, 0))
		valid, weight := make([]bool, d.b*d.s), make([]float32, d.b*d.s)
		ones := rapid.Bool().Draw(t, "loss mask of ones")
		for i := range valid {
			valid[i], weight[i] = rng.IntN(3) > 0, float32(rng.IntN(2))
			if ones {
				weight[i] = 1
			}
		}
		n := rapid.IntRange(1, 4).Draw(t, "rolls")
		pad := (&nn.Validity{B: d.b, S: d.s, Valid: valid}).PadMask()
		loss := &nn.LossMask{B: d.b, S: d.s, AllOnes: ones}
		if !ones {
			loss.Weight = weight
		}
		counted := int64(0)
		d.run(t, nil, func(c *nn.Ctx[float64], rank int) {
			local := func(w []bool) []bool { return trial.Local(d.src[rank], d.b, d.s, 1, w, false) }
			v, m := pad.Local(c.Frame).Validity(), loss.Local(c.Frame)
			require.Equal(t, local(valid), v.Valid)
			for k := 1; k <= n; k++ {
				before := slices.Clone(v.Valid)
				v, m = nn.RollValidity(c, v), nn.RollLossMask(c, m)
				require.Len(t, before, d.b*d.l)
				require.Equal(t, local(trial.Rolled(d.docs, d.b, d.s, 1, k, valid, false)), v.Valid)
				require.Equal(t, trial.Local(d.src[rank], d.b, d.s, 1, trial.Rolled(d.docs, d.b, d.s, 1, k, weight, 0), 0), m.Weight)
				require.Zero(t, v.Layout&nn.SPShard)
			}
			counted += m.Count()
		})
		want := int64(0)
		for _, w := range trial.Rolled(d.docs, d.b, d.s, 1, n, weight, 0) {
			want += int64(w)
		}
		require.Equal(t, want, counted)
	})
}

// A frame holds every position once, in the place that the zigzag layout gives it, and its runs are what attention may take
// for successive positions.
func TestI21_Frames(t *testing.T) {
	property.Check(t, 400, func(t *rapid.T) {
		d := drawBatch(t, 40)
		places := trial.Places(d.docs, d.b, d.s)
		held := make([]int, d.b*d.s)
		for r, f := range nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align) {
			require.Equal(t, d.l, f.L)
			require.Equal(t, d.src[r], ints(f.Src))
			for i, p := range d.src[r] {
				require.Equal(t, p < 0, f.Inserted(i/d.l, i%d.l))
				if p >= 0 {
					held[i/d.l*d.s+p]++
					require.EqualValues(t, places[i/d.l*d.s+p].Off, f.Pos[i], "slot %d", i)
				}
			}
			for b, runs := range f.Runs {
				slot := 0
				for _, run := range runs {
					require.Equal(t, slot, run.From, "runs follow each other")
					require.Less(t, run.From, run.To)
					for slot = run.From; slot < run.To; slot++ {
						if p := d.src[r][b*d.l+slot]; p >= 0 {
							at := places[b*d.s+p]
							require.Equal(t, [2]int{at.Doc, at.Off}, [2]int{run.Doc, run.Order + slot - run.From})
						}
					}
				}
				require.Equal(t, d.l, slot, "runs cover the row")
			}
		}
		for i, n := range held {
			require.Equal(t, 1, n, "position %d", i)
		}
	})
}

func ints(x []int32) []int {
	out := make([]int, len(x))
	for i, v := range x {
		out[i] = int(v)
	}
	return out
}

// There and back is the identity on real slots, what was inserted is the fill, and the way back is the transpose of the
// way there.
func TestI21_RoundTrip(t *testing.T) {
	property.Check(t, 200, func(t *rapid.T) {
		d := drawBatch(t, 30)
		rng := rand.New(rand.NewPCG(d.seed, 0))
		x := make([]int64, d.b*d.s)
		for i := range x {
			x[i] = int64(rng.IntN(1000))
		}
		before, back, grad := slices.Clone(x), make([]int64, len(x)), make([]int64, len(x))
		forward, backward := int64(0), int64(0)
		for r, f := range nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align) {
			local := nn.TakeRows(f, x, -7)
			require.Equal(t, trial.Local(d.src[r], d.b, d.s, 1, x, -7), local)
			nn.PutRows(f, local, back)
			g := make([]int64, len(local))
			for i := range g {
				g[i] = int64(rng.IntN(1000))
				if d.src[r][i] >= 0 {
					forward += local[i] * g[i]
				}
			}
			nn.PutRows(f, g, grad)
		}
		for i, v := range x {
			backward += v * grad[i]
		}
		require.Equal(t, before, x)
		require.Equal(t, x, back)
		require.Equal(t, forward, backward)
		require.Nil(t, nn.TakeRows[int32](nn.NewFrames(d.docs, d.b, d.s, d.cp, 1)[0], nil, 0))
	})
}

// Conversion of validity is validity of conversion; inserted slots are padding and count in no loss.
func TestI21_MasksOfFrames(t *testing.T) {
	property.Check(t, 200, func(t *rapid.T) {
		d := drawBatch(t, 30)
		rng := rand.New(rand.NewPCG(d.seed, 0))
		p, m := &nn.PadMask{B: d.b, S: d.s}, &nn.LossMask{B: d.b, S: d.s}
		for range d.b * d.s {
			p.Pad, m.Weight = append(p.Pad, rng.IntN(2) == 0), append(m.Weight, float32(rng.IntN(2)))
		}
		total := int64(0)
		for r, f := range nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align) {
			local := p.Local(f)
			require.Equal(t, trial.Local(d.src[r], d.b, d.s, 1, p.Pad, true), local.Pad)
			require.Equal(t, d.l, local.S)
			require.Equal(t, nn.TakeRows(f, p.Validity().Valid, false), local.Validity().Valid)
			total += m.Local(f).Count()
			ones := (&nn.LossMask{B: d.b, S: d.s, AllOnes: true}).Local(f)
			real := 0
			for _, src := range d.src[r] {
				if src >= 0 {
					real++
				}
			}
			require.EqualValues(t, real, ones.Count())
		}
		require.Equal(t, m.Count(), total)
	})
}

// A mask's layout is that of the tensors beside it.
func TestLayoutOfALocalMask(t *testing.T) {
	f := nn.NewFrames(nil, 1, 3, 1, 2)[0]
	require.Equal(t, nn.Full, f.Layout())
	require.Equal(t, f.Layout(), (&nn.PadMask{B: 1, S: 3, Pad: make([]bool, 3)}).Local(f).Layout)
}

// Every slot's angle must exist in the table, those of inserted slots too.
func TestAnglesOfAllSlotsExist(t *testing.T) {
	property.Check(t, 400, func(t *rapid.T) {
		d := drawBatch(t, 60)
		for _, f := range nn.NewFrames(d.docs, d.b, d.s, d.cp, d.align) {
			for i, p := range f.Pos {
				require.Less(t, int(p), nn.RopeLength(d.s, d.cp), "slot %d of %d", i, f.L)
			}
		}
	})
}

// A row of one-token documents is spread over many more slots than a document has positions; the row beside it, one
// document, has as many slots behind its end.
func TestAnglesBesideManyShortDocuments(t *testing.T) {
	short := make([]nn.Doc, 24)
	for i := range short {
		short[i] = nn.Doc{Start: i, Logical: 1, Physical: 1}
	}
	for _, f := range nn.NewFrames(nn.Docs{short, nil}, 2, 24, 2, 1) {
		require.Equal(t, 48, f.L)
		for _, p := range f.Pos {
			require.Less(t, int(p), nn.RopeLength(24, 2))
		}
	}
}
