package oracle_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/internal/inproc/trial"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/oracle"
)

// The grid of seeds/000: a small model with experts and two depths, forward and backward.
const (
	gridDepths = 2
	gridTopK   = 2
	gridS      = 8
)

// gridRows are the valid lengths of the rows of a microbatch.
var gridRows = map[string][]int{"valid": {gridS, gridS, gridS}, "right-padded": {5, 1, gridS}, "all padding": {0, 0, 0}}

// gridCell is one job of the grid.
type gridCell struct {
	embeddings, mask bool
	rows             string
}

func (c gridCell) String() string {
	return fmt.Sprintf("embeddings=%v mask=%v rows=%s", c.embeddings, c.mask, c.rows)
}

// job is two microbatches; labels at padding count nowhere.
func (c gridCell) job() *trial.Job {
	m := config.Model{NumLayers: 2, HiddenSize: 8, NumAttentionHeads: 4, NumQueryGroups: 2, KVChannels: 4, FFNHiddenSize: 8, PaddedVocabSize: 16,
		LayernormEpsilon: 1e-5, RotaryBase: 10000, InitMethodStd: 0.4, GatedLinearUnit: true, UntieEmbeddings: true,
		NumMoEExperts: 4, MoEFFNHiddenSize: 6, MoERouterTopK: gridTopK, MoERouterBalancing: config.Words{"aux_loss"}, MoEAuxLossCoeff: config.Numbers{0.2}, MoEZLossCoeff: 0.05,
		MTPNumLayers: gridDepths, MTPLossScaling: 0.3}
	shape := trial.Shape{B: 3, S: gridS, V: m.PaddedVocabSize, H: m.HiddenSize, Pad: c.mask, Embeddings: c.embeddings}
	rng := rand.New(rand.NewPCG(11, 0))
	var step []*nn.Microbatch
	for range 2 {
		mb := &nn.Microbatch{B: shape.B, S: shape.S}
		trial.Fill(rng, mb, shape, c.valid(0), 1)
		step = append(step, mb)
	}
	return &trial.Job{Model: m, Optimizer: trial.Adam, Seed: 4, Batches: [][]*nn.Microbatch{step},
		Wants: func(name string, _ int) bool {
			return strings.HasSuffix(name, "padding_mask") || strings.Contains(name, ".router.") || strings.HasSuffix(name, ".loss_mask")
		}}
}

// valid says which positions are valid n positions further on, row by row.
func (c gridCell) valid(n int) (v []bool) {
	for _, length := range gridRows[c.rows] {
		for i := range gridS {
			v = append(v, i+n < length)
		}
	}
	return v
}

func count(v []bool) (n float64) {
	for _, x := range v {
		if x {
			n++
		}
	}
	return n
}

var gridLayouts = []trial.Layout{trial.Single, {TP: 1, CP: 2, DP: 1}, {TP: 2, CP: 1, DP: 1, SP: true}, {TP: 2, CP: 2, DP: 1, SP: true},
	{TP: 2, CP: 2, DP: 2, SP: true}}

func TestSeedGrid(t *testing.T) {
	for _, embeddings := range []bool{false, true} {
		for _, mask := range []bool{false, true} {
			for _, rows := range slices.Sorted(maps.Keys(gridRows)) {
				cell := gridCell{embeddings, mask, rows}
				t.Run(cell.String(), func(t *testing.T) { cell.check(t) })
			}
		}
	}
}

func (c gridCell) check(t *testing.T) {
	j := c.job()
	var single *trial.Outcome
	for _, l := range gridLayouts {
		masks := map[nn.Tag]int{}
		out, err := j.Run(l, inproc.Options{Seed: 3, Sent: func(h messages.Header, _ []byte) {
			if tag := collective.NameIn(h).Tag; tag == nn.TagMaskGather || tag == nn.TagRollPaddingMask {
				masks[tag]++
			}
		}})
		require.NoError(t, err)
		require.Equal(t, c.maskMessages(l), masks, "%s", l)
		if single == nil {
			single = out
		}
		for mb := range 2 {
			c.checkMasks(t, out, mb)
			c.checkRouters(t, out, mb)
		}
		c.checkGradients(t, out, single, l)
	}
}

// maskMessages are the messages that masks may cost: in every depth of every microbatch one boolean all-gather under
// sequence parallelism, one edge each way over every link of the context-parallel group; none without a mask.
func (c gridCell) maskMessages(l trial.Layout) map[nn.Tag]int {
	m := map[nn.Tag]int{}
	if !c.mask {
		return m
	}
	depths := gridDepths * 2 // microbatches of the step, over all replicas
	if l.SP {
		m[nn.TagMaskGather] = depths * l.CP * l.TP * (l.TP - 1)
	}
	if l.CP > 1 {
		m[nn.TagRollPaddingMask] = depths * l.TP * 2 * (l.CP - 1)
	}
	return m
}

// checkMasks compares what every depth saw with arithmetic on lengths.
func (c gridCell) checkMasks(t *testing.T, out *trial.Outcome, mb int) {
	for k := 1; k <= gridDepths; k++ {
		name, valid := fmt.Sprintf("mtp.%d.", k), c.valid(k)
		_, seen, err := out.Record.Get(oracle.Key{Name: name + "padding_mask", Microbatch: mb})
		require.NoError(t, err)
		require.Equal(t, c.mask, seen, "an absent mask stays absent")
		loss, err := out.Get(name+"loss_mask", 0, mb)
		require.NoError(t, err)
		require.Equal(t, nn.Bools(valid), loss.Data)
		if !c.mask {
			continue
		}
		pad, err := out.Get(name+"padding_mask", 0, mb)
		require.NoError(t, err)
		require.Len(t, pad.Data, len(valid))
		for i, v := range valid {
			require.Equal(t, v, pad.Data[i] == 0, "depth %d position %d of row %d", k, i%gridS, i/gridS)
		}
	}
}

// checkRouters compares the counts of every router of the trunk and the depths.
func (c gridCell) checkRouters(t *testing.T, out *trial.Outcome, mb int) {
	for scope, n := range map[string]int{"layer.0": 0, "layer.1": 0, "mtp.1": 1, "mtp.2": 2} {
		want := count(c.valid(n))
		if !c.mask {
			want = float64(3 * gridS)
		}
		valid, err := out.Get(scope+".router.valid_tokens", 0, mb)
		require.NoError(t, err)
		require.Equal(t, []float64{want}, valid.Data, scope)
		perExpert, err := out.Get(scope+".router.tokens_per_expert", 0, mb)
		require.NoError(t, err)
		require.Equal(t, c.executed(t, out, scope, n, mb), perExpert.Data, scope)
		for _, loss := range []string{"aux_loss", "z_loss"} {
			v, err := out.Get(scope+".router."+loss, 0, mb)
			require.NoError(t, err)
			require.Equal(t, want > 0, v.Data[0] > 0, "%s of %s is %v", loss, scope, v.Data[0])
		}
	}
}

// executed counts the routing map over valid rows; map rows are position·B + b.
func (c gridCell) executed(t *testing.T, out *trial.Outcome, scope string, n, mb int) []float64 {
	m, err := out.Get(scope+".router.routing_map", 0, mb)
	require.NoError(t, err)
	require.Equal(t, 3*gridS, m.R)
	valid, counts := c.valid(n), make([]float64, m.C)
	for row := range m.R {
		chosen := 0.0
		for e := range m.C {
			chosen += m.Data[row*m.C+e]
			if b, i := row%3, row/3; !c.mask || valid[b*gridS+i] {
				counts[e] += m.Data[row*m.C+e]
			}
		}
		require.EqualValues(t, gridTopK, chosen, "padding rows are routed too")
	}
	return counts
}

// checkGradients: finite, those of routers there, all equal to the single rank's; zero where nothing counts.
func (c gridCell) checkGradients(t *testing.T, out, single *trial.Outcome, l trial.Layout) {
	require.NoError(t, out.Same(single, 1e-9), "%s", l)
	routers := 0
	for name, g := range out.Steps[0].Grads {
		norm := 0.0
		for _, v := range g {
			require.False(t, math.IsNaN(v) || math.IsInf(v, 0), "gradient of %s is not finite", name)
			norm += v * v
		}
		if strings.HasSuffix(name, ".mlp.gate.weight") {
			routers++
			nothing := c.mask && c.rows == "all padding"
			require.Equal(t, nothing, norm == 0, "gradient of %s, %s", name, l)
		}
	}
	require.Equal(t, 2+gridDepths, routers)
}
