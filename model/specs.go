// Package model joins layers into what a rank runs: the trunk, the heads, the depths, and the straight-line
// programs that train them.
package model

import (
	"fmt"
	"strings"

	"phalanx/config"
	"phalanx/moe"
	"phalanx/mtp"
	"phalanx/nn"
	"phalanx/tensor"
)

// builder declares a rank's parameters under their Hugging Face names and builds the modules on them.
type builder[T tensor.Float] struct {
	cfg    *config.Model
	tp     int
	tpRank int
	params *nn.Params[T]
	rope   *nn.RopeTable[T]
	build  []func() // run once memory is there

	place       moe.Place
	expertIndex int // this rank's place in the expert group
	routers     []*moe.Router[T]
	at          []int // depths at which the block being declared is applied; 0 is the trunk
	seed        uint64
	err         error

	stage   int  // pipeline rank
	foreign bool // what is being declared lies on another pipeline stage
}

// on says on which pipeline stage what follows lies.
func (b *builder[T]) on(stage int) { b.foreign = stage != b.stage }

// declare adds a parameter, or the name of one that another stage holds: that one has no memory.
func (b *builder[T]) declare(s nn.Spec) *nn.Param[T] {
	if b.foreign {
		b.params.Foreign = append(b.params.Foreign, s)
		return &nn.Param[T]{Spec: s}
	}
	return b.params.Declare(s)
}

func (b *builder[T]) sp() bool { return b.cfg.SequenceParallel && b.tp > 1 }

func (b *builder[T]) shard(dim int) nn.Shard {
	return nn.Shard{Dim: dim, Parts: b.tp, Index: b.tpRank}
}

func (b *builder[T]) normal() nn.Init { return nn.Normal(b.cfg.InitMethodStd) }

func (b *builder[T]) outNormal() nn.Init {
	return nn.ScaledNormal(b.cfg.InitMethodStd, b.cfg.NumLayers)
}

// norm declares a norm that sees this rank's rows only under sequence parallelism.
func (b *builder[T]) norm(name, group string) nn.Norm[T] {
	return b.normOf(nn.Spec{Name: name, Shape: []int{b.cfg.HiddenSize}, SumTP: b.sp(), Group: group})
}

// headNorm declares a norm over head features: each rank sees its own heads, so its gradients are always partial.
func (b *builder[T]) headNorm(name, group string) *nn.Norm[T] {
	n := b.normOf(nn.Spec{Name: name, Shape: []int{b.cfg.KVChannels}, SumTP: b.tp > 1, Group: group})
	return &n
}

// normOf declares a gain and, for LayerNorm, a bias of the same kind.
func (b *builder[T]) normOf(s nn.Spec) nn.Norm[T] {
	n := nn.Norm[T]{Eps: T(b.cfg.LayernormEpsilon), ZeroCentered: b.cfg.LayernormZeroCentered}
	s.Shard = nn.Unsharded
	if b.cfg.Normalization == "LayerNorm" {
		bias := s
		bias.Name = strings.TrimSuffix(s.Name, ".weight") + ".bias"
		n.Bias = b.declare(bias)
	}
	if !n.ZeroCentered {
		s.Init = nn.Ones
	}
	n.Gain = b.declare(s)
	return n
}

// matrix declares a weight [out, in] cut along dim; dim < 0: replicated.
func (b *builder[T]) matrix(name string, out, in, dim int, init nn.Init, group string) *nn.Param[T] {
	s := nn.Spec{Name: name, Shape: []int{out, in}, Shard: nn.Unsharded, Init: init, Group: group, SumTP: dim < 0 && b.sp()}
	if dim >= 0 {
		s.Shard = b.shard(dim)
	}
	return b.declare(s)
}

func (b *builder[T]) dropout(rate float64) nn.Dropout { return nn.Dropout{Rate: rate, Seed: b.seed} }

func (b *builder[T]) later(f func()) {
	if !b.foreign {
		b.build = append(b.build, f)
	}
}

// block declares one transformer layer.
func (b *builder[T]) block(prefix, group string, isMoE bool) *nn.Block[T] {
	l := &nn.Block[T]{Dropout: b.dropout(b.cfg.HiddenDropout)}
	l.Norm1 = b.norm(prefix+"input_layernorm.weight", group)
	b.attention(prefix+"self_attn.", group, &l.Attn)
	l.Norm2 = b.norm(prefix+"post_attention_layernorm.weight", group)
	if isMoE {
		l.FFN = b.moe(prefix+"mlp.", group)
	} else {
		l.FFN = b.mlp(prefix+"mlp.", group)
	}
	return l
}

func (b *builder[T]) attention(prefix, group string, a *nn.Attention[T]) {
	m, h := b.cfg, b.cfg.HiddenSize
	q, kv := m.NumAttentionHeads*m.KVChannels, m.NumQueryGroups*m.KVChannels
	wq := b.matrix(prefix+"q_proj.weight", q, h, 0, b.normal(), group)
	wk := b.matrix(prefix+"k_proj.weight", kv, h, 0, b.normal(), group)
	wv := b.matrix(prefix+"v_proj.weight", kv, h, 0, b.normal(), group)
	biases := b.biases(m.AddQKVBias || m.AddBiasLinear, group, out{prefix + "q_proj", q}, out{prefix + "k_proj", kv}, out{prefix + "v_proj", kv})
	wo := b.matrix(prefix+"o_proj.weight", h, q, 1, b.outNormal(), group)
	last := b.rowBias(prefix+"o_proj", group)
	if m.QKLayernorm {
		a.QNorm, a.KNorm = b.headNorm(prefix+"q_norm.weight", group), b.headNorm(prefix+"k_norm.weight", group)
	}
	a.Hq, a.Hkv, a.D, a.Rope = m.NumAttentionHeads/b.tp, m.NumQueryGroups/b.tp, m.KVChannels, b.rope
	a.CommType, a.Dropout = commTypes[m.CPCommType], b.dropout(m.AttentionDropout)
	b.later(func() {
		a.QKV = nn.ColumnLinear[T]{Weights: nn.WeightsOf((q+2*kv)/b.tp, h, wq, wk, wv), Bias: biasOf(biases)}
		a.Out = nn.RowLinear[T]{Weights: nn.WeightsOf(h, q/b.tp, wo), Bias: biasOf(last)}
	})
}

var commTypes = map[string]nn.CommType{"": nn.P2P, "p2p": nn.P2P, "all_gather": nn.GatherAll, "a2a": nn.AllToAll}

func (b *builder[T]) act() nn.Activation[T] { return nn.Activation[T]{Gated: b.cfg.GatedLinearUnit} }

// fc1 declares the first product of a feed-forward layer: gate rows (if gated), then up rows.
func (b *builder[T]) fc1(prefix string, f, dim int, group string) []*nn.Param[T] {
	var ps []*nn.Param[T]
	if b.cfg.GatedLinearUnit {
		ps = append(ps, b.matrix(prefix+"gate_proj.weight", f, b.cfg.HiddenSize, dim, b.normal(), group))
	}
	return append(ps, b.matrix(prefix+"up_proj.weight", f, b.cfg.HiddenSize, dim, b.normal(), group))
}

func (b *builder[T]) mlp(prefix, group string) *nn.MLP[T] {
	return b.mlpOf(prefix, group, b.cfg.FFNHiddenSize)
}

// mlpOf declares a dense feed-forward layer of f hidden features.
func (b *builder[T]) mlpOf(prefix, group string, f int) *nn.MLP[T] {
	h := b.cfg.HiddenSize
	w1 := b.fc1(prefix, f, 0, group)
	b1 := b.fc1Bias(prefix, f, group)
	w2 := b.matrix(prefix+"down_proj.weight", h, f, 1, b.outNormal(), group)
	b2 := b.rowBias(prefix+"down_proj", group)
	l := &nn.MLP[T]{Act: b.act()}
	b.later(func() {
		l.FC1 = nn.ColumnLinear[T]{Weights: nn.WeightsOf(l.Act.Width(f/b.tp), h, w1...), Bias: biasOf(b1)}
		l.FC2 = nn.RowLinear[T]{Weights: nn.WeightsOf(h, f/b.tp, w2), Bias: biasOf(b2)}
	})
	return l
}

// moe declares a mixture of experts: this rank's experts, their hidden features cut over expert tensor parallelism, and
// the names of all others.
func (b *builder[T]) moe(prefix, group string) *moe.Layer[T] {
	m, h := b.cfg, b.cfg.HiddenSize
	l := &moe.Layer[T]{Act: b.act(), Place: b.place, DropPadding: m.MoEDropPaddingTokens}
	d, err := moe.ParseDispatcher(m.MoETokenDispatcher)
	if err != nil {
		b.err = err
	}
	l.Dispatcher = d
	router := b.matrix(prefix+"gate.weight", m.NumMoEExperts, h, -1, b.normal(), group)
	b.router(&l.Router, prefix)
	b.later(func() { l.Router.Weight = nn.WeightsOf(m.NumMoEExperts, h, router) })
	n := b.place.Experts / b.place.EP
	l.Experts = make([]moe.Expert[T], n)
	for e := range m.NumMoEExperts {
		b.expert(l, e, e-b.expertIndex/b.place.ETP*n, fmt.Sprintf("%sexperts.%d.", prefix, e), group)
	}
	if m.MoESharedExpertSize > 0 {
		l.Shared = b.shared(prefix, group)
	}
	if !b.foreign {
		b.routers = append(b.routers, &l.Router)
	}
	return l
}

// expert declares expert e of a layer, the i-th of this rank if 0 ≤ i < its number of experts.
func (b *builder[T]) expert(l *moe.Layer[T], e, i int, name, group string) {
	m, h, f := b.cfg, b.cfg.HiddenSize, b.cfg.MoEFFNHiddenSize
	etp := b.place.ETP
	matrix := func(name string, out, in, dim int, init nn.Init) *nn.Param[T] {
		s := nn.Spec{Name: name, Shape: []int{out, in}, Init: init, Group: group, Expert: b.tp == 1 || b.sp(),
			Shard: nn.Shard{Dim: dim, Parts: etp, Index: b.expertIndex % etp}}
		if i < 0 || i >= len(l.Experts) {
			b.params.Foreign = append(b.params.Foreign, s)
			return nil
		}
		return b.declare(s)
	}
	var w1 []*nn.Param[T]
	if m.GatedLinearUnit {
		w1 = append(w1, matrix(name+"gate_proj.weight", f, h, 0, b.normal()))
	}
	w1 = append(w1, matrix(name+"up_proj.weight", f, h, 0, b.normal()))
	w2 := matrix(name+"down_proj.weight", h, f, 1, b.outNormal())
	if w2 == nil {
		return
	}
	b.later(func() {
		l.Experts[i] = moe.Expert[T]{FC1: nn.WeightsOf(l.Act.Width(f/etp), h, w1...), FC2: nn.WeightsOf(h, f/etp, w2)}
	})
}

// router fills in how experts are chosen and balanced.
func (b *builder[T]) router(r *moe.Router[T], prefix string) {
	m := b.cfg
	score, err := moe.ParseScoreFunc(m.MoERouterScore)
	if err != nil {
		b.err = err
	}
	r.K, r.Score, r.PreSoftmax, r.ZCoeff, r.Fused = m.MoERouterTopK, score, m.MoERouterPreSoftmax, m.MoEZLossCoeff, m.MoERouterFusion
	r.Groups = moe.Groups{N: m.MoERouterNumGroups, Top: m.MoERouterGroupTopK}
	r.Scaling, r.Jitter, r.Forced, r.Seed = m.MoERouterTopKScaling, m.MoEInputJitterEps, m.MoERouterForceLoadBalancing, b.seed
	r.Capacity = moe.Capacity{Factor: m.MoEExpertCapacityFactor, ByPosition: m.MoETokenDropPolicy == "position",
		Pad: m.MoEPadExpertInput}
	for i, kind := range []moe.BalancingKind{moe.AuxLoss, moe.SeqAuxLoss, moe.GlobalAuxLoss} {
		for j, name := range m.MoERouterBalancing {
			if name == [...]string{"aux_loss", "seq_aux_loss", "global_aux_loss"}[i] {
				r.Balancing = append(r.Balancing, moe.Balancing{Kind: kind, Coeff: m.MoEAuxLossCoeff.At(j), PerRow: m.MoESeqAuxPerRow})
			}
		}
	}
	if m.MoERouterEnableExpertBias {
		r.Bias = moe.NewBias[T](prefix+"gate.e_score_correction_bias", m.NumMoEExperts, m.MoERouterBiasUpdateRate)
		for _, depth := range b.at {
			r.Bias.Use(depth)
		}
	}
}

// shared declares the shared expert.
func (b *builder[T]) shared(prefix, group string) *moe.Shared[T] {
	h, f := b.cfg.HiddenSize, b.cfg.MoESharedExpertSize
	s := &moe.Shared[T]{MLP: b.mlpOf(prefix+"shared_experts.", group, f)}
	if b.cfg.MoESharedExpertGate {
		gate := b.matrix(prefix+"shared_expert_gate.weight", 1, h, -1, b.normal(), group)
		b.later(func() {
			w := nn.WeightsOf(1, h, gate)
			s.Gate = &w
		})
	}
	return s
}

// depth declares the parameters of one MTP layer, stored as decoder layer L+i.
func (b *builder[T]) depth(i int) *mtp.Depth[T] {
	m, h := b.cfg, b.cfg.HiddenSize
	prefix, group := fmt.Sprintf("model.layers.%d.", m.NumLayers+i), b.depthGroup()
	b.at = []int{i + 1}
	if m.MTPUseRepeatedLayer {
		b.at = nil
		for k := range m.MTPNumLayers {
			b.at = append(b.at, k+1)
		}
	}
	d := &mtp.Depth[T]{}
	d.ENorm = b.norm(prefix+"enorm.weight", group)
	d.HNorm = b.norm(prefix+"hnorm.weight", group)
	w := b.matrix(prefix+"eh_proj.weight", h, 2*h, 0, b.normal(), group)
	d.Block = b.block(prefix, group, m.NumMoEExperts > 0 && m.MoELayerFreq.IsMoE(m.NumLayers-1))
	d.Final = b.norm(prefix+"shared_head.norm.weight", group)
	b.later(func() { d.EHProj = nn.ColumnLinear[T]{Weights: nn.WeightsOf(h/b.tp, 2*h, w)} })
	return d
}

// depthGroup is the norm group of the depths: their own when their heads are detached.
func (b *builder[T]) depthGroup() string {
	if b.cfg.MTPDetachHeads {
		return "mtp"
	}
	return ""
}

func newBuilder[T tensor.Float](s *config.Scenario, rank int) *builder[T] {
	sizes := s.Sizes()
	m := &s.Model
	return &builder[T]{cfg: m, tp: sizes.TP, tpRank: sizes.Coord(rank).TP, stage: sizes.Coord(rank).PP, params: &nn.Params[T]{}, seed: s.RNG.Seed,
		rope:        ropeOf[T](m, nn.RopeLength(s.Dataset.SeqLength, sizes.CP)),
		place:       moe.Place{Experts: m.NumMoEExperts, EP: max(sizes.EP, 1), ETP: max(sizes.ETP, 1)},
		expertIndex: sizes.Coord(rank).EP, at: []int{0}}
}
