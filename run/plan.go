package run

import (
	"fmt"

	"phalanx/config"
	"phalanx/mesh"
	"phalanx/model"
	"phalanx/tensor"
)

// MakePlan says what a scenario comes to: ranks, groups, placement, messages and memory, without running it.
func MakePlan(s config.Scenario) (*Plan, error) {
	p := &Plan{Scenario: s}
	sizes, m := s.Sizes(), &s.Model
	p.line("scenario   %s", s.Name)
	p.line("model      %d layers, hidden %d, %d heads (%d key/value), vocabulary %d: %d parameters, %s", m.NumLayers, m.HiddenSize,
		m.NumAttentionHeads, m.NumQueryGroups, m.PaddedVocabSize, m.Parameters(), s.Train.DType)
	if m.HasMoE() {
		p.line("experts    %d per MoE layer, top-%d, width %d", m.NumMoEExperts, m.MoERouterTopK, m.MoEFFNHiddenSize)
	}
	if m.MTPNumLayers > 0 {
		p.line("depths     %d MTP, loss factor %g, loss mask %s", m.MTPNumLayers, m.MTPLossScaling, m.MTPLossMask)
	}
	p.line("ranks      %d = tp %d × cp %d × dp %d%s%s", sizes.World(), sizes.TP, sizes.CP, sizes.DP, ppText(sizes), spText(m))
	p.line("batch      global %d = micro %d × %d microbatches × dp %d, sequence %d", s.Train.GlobalBatchSize, s.Train.MicroBatchSize,
		s.NumMicrobatches(), sizes.DP, s.Dataset.SeqLength)
	for _, axis := range []mesh.Axis{mesh.TP, mesh.CP, mesh.EP, mesh.DP, mesh.PP} {
		p.groups(sizes, axis)
	}
	p.ranks(&s)
	if err := p.pipeline(&s); err != nil {
		return nil, err
	}
	p.traffic(&s)
	if err := p.memory(&s); err != nil {
		return nil, err
	}
	for _, n := range s.Notes {
		p.line("note       %s", n)
	}
	return p, nil
}

func (p *Plan) line(format string, args ...any) {
	p.Lines = append(p.Lines, fmt.Sprintf(format, args...))
}

func spText(m *config.Model) string {
	if m.SequenceParallel && m.TensorParallel > 1 {
		return ", sequence parallel"
	}
	return ""
}

func ppText(sizes mesh.Sizes) string {
	if sizes.PP == 1 {
		return ""
	}
	return fmt.Sprintf(" × pp %d", sizes.PP)
}

func (p *Plan) groups(sizes mesh.Sizes, axis mesh.Axis) {
	if sizes.Of(axis) == 1 {
		return
	}
	seen := map[int]bool{}
	for r := range sizes.World() {
		if g := sizes.GroupIndex(r, axis); !seen[g] {
			seen[g] = true
			p.line("group      %s %v", axis, sizes.Group(r, axis))
		}
	}
}

// ranks says what every rank holds.
func (p *Plan) ranks(s *config.Scenario) {
	sizes := s.Sizes()
	for r := range sizes.World() {
		c := sizes.Coord(r)
		n := s.NumMicrobatches()
		what := fmt.Sprintf("layers 0–%d", s.Model.NumLayers-1)
		if sizes.PP > 1 {
			what = fmt.Sprintf("stage %d", c.PP)
		}
		p.line("rank %-5d tp %d cp %d dp %d: %s, heads 1/%d, microbatches %d–%d%s", r, c.TP, c.CP, c.DP, what, sizes.TP,
			c.DP*n, (c.DP+1)*n-1, depthText(&s.Model))
	}
}

func depthText(m *config.Model) string {
	switch {
	case m.MTPNumLayers == 0 || m.PipelineParallel > 1:
		return ""
	case m.MTPNumLayers == 1:
		return ", depth 1"
	}
	return fmt.Sprintf(", depths 1–%d", m.MTPNumLayers)
}

// traffic counts the tensor-parallel and data-parallel bytes that one rank sends in a step, by the exchange's rule:
// an all-gather or reduce-scatter of n bytes over g ranks sends (g−1)/g·n, an all-reduce twice that.
func (p *Plan) traffic(s *config.Scenario) {
	sizes, m := s.Sizes(), &s.Model
	size := float64(elementSize(s))
	rows := float64(s.Train.MicroBatchSize * s.Dataset.SeqLength)
	if g := float64(sizes.TP); g > 1 {
		per := 2 * (g - 1) / g * rows * float64(m.HiddenSize) * size // one all-reduce, or its two halves under SP
		blocks := float64(m.NumLayers + m.MTPNumLayers)
		p.line("messages   tp: about %s a step and rank (activations, forward and backward)", bytesText(per*4*blocks*float64(s.NumMicrobatches())))
	}
	if g := float64(sizes.CP); g > 1 {
		kv := 2 * float64(m.NumQueryGroups/sizes.TP*m.KVChannels) * rows / g * size
		blocks := float64(m.NumLayers + m.MTPNumLayers)
		p.line("messages   cp: about %s a step and rank (keys and values, %s)", bytesText(3*(g-1)*kv*blocks*float64(s.NumMicrobatches())), m.CPCommType)
	}
	if g := float64(sizes.DP); g > 1 {
		p.line("messages   dp: %s a step and rank (gradients)", bytesText(2*(g-1)/g*float64(m.Parameters())/float64(sizes.TP)*size))
	}
}

func elementSize(s *config.Scenario) int {
	if s.Train.DType == "fp64" {
		return tensor.F64.Size()
	}
	return tensor.F32.Size()
}

// memory is what the first rank of each stage holds; others of the stage differ by norms and experts at most.
func (p *Plan) memory(s *config.Scenario) error {
	sizes, all := s.Sizes(), 0
	text := func(elements int) string { return bytesText(float64(elements) * float64(elementSize(s))) }
	for stage := range sizes.PP {
		rank := sizes.Rank(mesh.Coord{PP: stage})
		m, err := model.MemoryOf(s, rank)
		if err != nil {
			return err
		}
		all += m.Elements() * (sizes.World() / sizes.PP)
		share := ""
		if parts := sizes.DP * sizes.CP; s.Optimizer.UseDistributedOptimizer && parts > 1 {
			share = fmt.Sprintf(" (1/%d of all)", parts)
		}
		p.line("memory     rank %d: %s = weights %s, gradients %s, moments %s%s, activations %s", rank, text(m.Elements()), text(m.Weights), text(m.Grads),
			text(m.Moments), share, text(m.Activations))
	}
	whole := int(s.Model.Parameters())
	p.line("memory     process: %s = %d ranks %s, weights put together for their hash at the end %s; the program itself and messages come on top",
		text(all+whole), sizes.World(), text(all), text(whole))
	return nil
}

func bytesText(b float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if b < 1024 {
			return fmt.Sprintf("%.4g %s", b, u)
		}
		b /= 1024
	}
	return fmt.Sprintf("%.4g TiB", b)
}
