package trial

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"phalanx/config"
	"phalanx/internal/inproc"
	"phalanx/nn"
)

// Layouts are all layouts over {1, 2}³, with and without sequence parallelism, one rank first.
func Layouts() []Layout {
	var all []Layout
	for _, dp := range []int{1, 2} {
		for _, cp := range []int{1, 2} {
			all = append(all, Layout{TP: 1, CP: cp, DP: dp}, Layout{TP: 2, CP: cp, DP: dp}, Layout{TP: 2, CP: cp, DP: dp, SP: true})
		}
	}
	return all
}

// Shape is what all batches of a job have in common.
type Shape struct {
	B, S, V, H int
	Packed     bool // several documents a row
	Pad        bool // with a padding mask
	Embeddings bool // precomputed ones
}

// DrawModel draws a small model that every layout of sizes 1 and 2 can take.
func DrawModel(t *rapid.T) config.Model {
	flag := rapid.Bool()
	m := config.Model{NumLayers: rapid.IntRange(1, 2).Draw(t, "layers"), HiddenSize: 8, NumAttentionHeads: 4,
		NumQueryGroups: rapid.SampledFrom([]int{2, 4}).Draw(t, "query groups"), KVChannels: rapid.SampledFrom([]int{2, 4}).Draw(t, "channels"),
		FFNHiddenSize: 6, PaddedVocabSize: 12, LayernormEpsilon: 1e-5, RotaryBase: 100, InitMethodStd: 0.4,
		QKLayernorm: flag.Draw(t, "qk norm"), GatedLinearUnit: flag.Draw(t, "gated"), UntieEmbeddings: flag.Draw(t, "untied"),
		MTPNumLayers: rapid.IntRange(0, 3).Draw(t, "depths"), CalculatePerTokenLoss: flag.Draw(t, "per token")}
	drawPositions(t, &m)
	m.Normalization, m.LayernormZeroCentered = rapid.SampledFrom([]string{"RMSNorm", "RMSNorm", "LayerNorm"}).Draw(t, "norm"), rapid.IntRange(0, 3).Draw(t, "zero-centered gains") == 0
	m.LabelSmoothing = rapid.SampledFrom([]float64{0, 0, 0.1}).Draw(t, "smoothing")
	m.AddQKVBias = flag.Draw(t, "qkv bias")
	if flag.Draw(t, "moe") {
		DrawExperts(t, &m)
	} else {
		m.AddBiasLinear = flag.Draw(t, "biases")
	}
	if m.MTPNumLayers > 0 {
		m.MTPLossScaling = rapid.SampledFrom([]float64{0.1, 0.7}).Draw(t, "factor")
		m.MTPUseRepeatedLayer, m.MTPDetachHeads = flag.Draw(t, "repeated"), rapid.IntRange(0, 3).Draw(t, "detached") == 0
	}
	return m
}

// drawPositions draws how positions enter.
func drawPositions(t *rapid.T, m *config.Model) {
	m.PositionEmbedding = rapid.SampledFrom([]string{"rope", "rope", "none", "learned_absolute"}).Draw(t, "positions")
	m.MaxPositionEmbeddings = 40 // with learned ones; no row of a test is longer
	if m.PositionEmbedding == "rope" {
		m.RotaryInterleaved = rapid.Bool().Draw(t, "interleaved")
		m.RotaryPercent = rapid.SampledFrom([]float64{1, float64(2) / float64(m.KVChannels)}).Draw(t, "rotary share")
	}
}

// DrawDropout draws what a model drops. What is dropped depends on the sample's place in the step and the position's in its
// row: tests that move those draw none.
func DrawDropout(t *rapid.T, m *config.Model) {
	m.HiddenDropout = rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "hidden dropout")
	m.AttentionDropout = rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "attention dropout")
}

// DrawExperts makes some layers of a model mixtures of experts.
func DrawExperts(t *rapid.T, m *config.Model) {
	m.NumMoEExperts, m.MoEFFNHiddenSize, m.MoERouterBalancing = rapid.IntRange(2, 4).Draw(t, "experts"), 4, config.Words{"aux_loss"}
	m.MoERouterTopK = rapid.IntRange(1, 2).Draw(t, "topk")
	m.MoERouterPreSoftmax = m.MoERouterTopK == 1 || rapid.Bool().Draw(t, "pre softmax")
	m.MoEAuxLossCoeff = config.Numbers{rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "aux")}
	m.MoEZLossCoeff = rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "z")
	m.MoELayerFreq.Pattern = make([]int, m.NumLayers)
	for i := range m.NumLayers {
		m.MoELayerFreq.Pattern[i] = 1
	}
	m.MoELayerFreq.Pattern[0] = rapid.IntRange(0, 1).Draw(t, "first layer is moe")
}

// Adam is an optimizer under which a wrong gradient shows in the weights. Its epsilon is far above the rounding of
// gradients that are zero by nature, as that of a key bias where a query sees one key.
var Adam = config.Optimizer{LR: 0.01, WeightDecay: 0.1, AdamBeta1: 0.9, AdamBeta2: 0.95, AdamEps: 1e-4, ClipGrad: 1}

// DrawShape draws a small shape for a model.
func DrawShape(t *rapid.T, m config.Model) Shape {
	return Shape{B: rapid.IntRange(1, 2).Draw(t, "rows"), S: rapid.IntRange(3, 9).Draw(t, "positions"), V: m.PaddedVocabSize, H: m.HiddenSize,
		Packed: rapid.Bool().Draw(t, "packed"), Pad: rapid.Bool().Draw(t, "padding mask"), Embeddings: rapid.IntRange(0, 3).Draw(t, "embeddings") == 0}
}

// DrawDocs draws the documents of every row: some empty, some of one position, some with a place that is longer than
// their data, perhaps with a tail behind the last.
func DrawDocs(t *rapid.T, b, s int) nn.Docs {
	docs := make(nn.Docs, b)
	for row := range docs {
		docs[row] = []nn.Doc{}
		most := rapid.SampledFrom([]int{1, 3, s}).Draw(t, "longest")
		end := rapid.SampledFrom([]int{s, s, rapid.IntRange(0, s).Draw(t, "end")}).Draw(t, "tail from")
		for at := 0; at < end; {
			physical := rapid.IntRange(0, min(most, end-at)).Draw(t, "physical")
			docs[row] = append(docs[row], nn.Doc{Start: at, Physical: physical, Logical: rapid.IntRange(0, physical).Draw(t, "logical")})
			at += physical
		}
	}
	return docs
}

// DrawBatch draws one microbatch: full, right-padded and empty rows, or packed documents; a loss mask with uneven
// counts that sometimes counts everything or nothing.
func DrawBatch(t *rapid.T, s Shape) *nn.Microbatch {
	mb := &nn.Microbatch{B: s.B, S: s.S}
	valid := make([]bool, 0, s.B*s.S)
	if s.Packed {
		mb.Docs = DrawDocs(t, s.B, s.S)
		for _, p := range Places(mb.Docs, s.B, s.S) {
			valid = append(valid, p.Off < p.Logical)
		}
	} else {
		for range s.B {
			n := rapid.SampledFrom([]int{s.S, rapid.IntRange(0, s.S).Draw(t, "length"), 0}).Draw(t, "valid")
			for i := range s.S {
				valid = append(valid, i < n)
			}
		}
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "values"), 0))
	Fill(rng, mb, s, valid, rapid.SampledFrom([]float64{AllOnes, 0, 0.3, 1}).Draw(t, "counted"))
	return mb
}

// AllOnes, as the share of labels that count, is a loss mask of ones that says so.
const AllOnes = -1

// Fill gives a microbatch random contents and its masks: valid says which positions are no padding, counted which share
// of their labels counts.
func Fill(rng *rand.Rand, mb *nn.Microbatch, s Shape, valid []bool, counted float64) {
	mb.Loss = &nn.LossMask{B: s.B, S: s.S, AllOnes: counted == AllOnes}
	if s.Pad {
		mb.Pad = &nn.PadMask{B: s.B, S: s.S}
	}
	for i, p := range Places(mb.Docs, s.B, s.S) {
		mb.IDs, mb.Labels = append(mb.IDs, int32(rng.IntN(s.V))), append(mb.Labels, int32(rng.IntN(s.V)))
		mb.Positions = append(mb.Positions, int32(p.Off))
		weight := float32(0)
		if rng.Float64() < counted && valid[i] {
			weight = 1
		}
		if !mb.Loss.AllOnes {
			mb.Loss.Weight = append(mb.Loss.Weight, weight)
		}
		if s.Pad {
			mb.Pad.Pad = append(mb.Pad.Pad, !valid[i])
		}
		for range s.H {
			if s.Embeddings {
				mb.Embeddings = append(mb.Embeddings, rng.NormFloat64())
			}
		}
	}
}

// DrawJob draws a model and steps of microbatches.
func DrawJob(t *rapid.T, m config.Model, s Shape, steps, microbatches int) *Job {
	j := &Job{Model: m, Optimizer: Adam, Seed: rapid.Uint64().Draw(t, "weights")}
	for range steps {
		var step []*nn.Microbatch
		for range microbatches {
			step = append(step, DrawBatch(t, s))
		}
		j.Batches = append(j.Batches, step)
	}
	return j
}

// Gains replaces the initial gains of norms, all ones, and biases, all zero, by random ones.
func (j *Job) Gains() error {
	w, err := j.Initial()
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(j.Seed, 1))
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if strings.HasSuffix(name, "norm.weight") || strings.HasSuffix(name, ".bias") {
			for i := range w[name] {
				w[name][i] = 0.5 + rng.Float64()
			}
		}
	}
	j.Weights = w
	return nil
}

// Initial is the weights before the first step.
func (j *Job) Initial() (map[string][]float64, error) {
	none := *j
	none.Batches = nil
	out, err := none.Run(Single, inproc.Options{})
	if err != nil {
		return nil, err
	}
	return out.Weights, nil
}
