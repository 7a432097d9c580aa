package run

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"phalanx/config"
	"phalanx/messages"
)

// figures turns merged reports into a user's figures and keeps the clock.
type figures struct {
	s       *config.Scenario
	now     func() time.Time
	started time.Time
	last    time.Time
	samples int64
	tokens  int64
	steps   []StepFigures
	compute atomic.Int64 // nanoseconds of all ranks so far
	known   int64        // of them, before this step
	evals   []EvalFigures
}

func (f *figures) begin() { f.started = f.now(); f.last = f.started }

// balancingKinds are the balancing losses by config value and by Megatron's name of the figure.
var balancingKinds = [3]struct{ config, figure string }{
	{"aux_loss", "load_balancing_loss"}, {"seq_aux_loss", "seq_load_balancing_loss"}, {"global_aux_loss", "global_load_balancing_loss"},
}

// step is one step's figures. LM loss is Σ/Σ over the step; mtp_k loss is the mean over microbatches of masked means,
// or Σ/Σ with per-token loss.
func (f *figures) step(e messages.StepReport) (StepFigures, Timing) {
	m := &f.s.Model
	f.samples += e.Sums.Samples
	out := StepFigures{Step: e.Step + 1, LMLoss: ratio(e.Sums.LMLoss, e.Sums.LMTokens), GradNorm: e.GradNorm, LR: e.LR,
		Tokens: e.Sums.Tokens, Samples: f.samples, Batch: f.s.Train.GlobalBatchSize, LMTokens: e.Sums.LMTokens, Skipped: e.Skipped}
	microbatches := float64(f.s.Train.GlobalBatchSize / f.s.Train.MicroBatchSize)
	for k, v := range e.Sums.MTPLoss {
		if m.CalculatePerTokenLoss {
			out.MTPLoss = append(out.MTPLoss, ratio(v, e.Sums.MTPTokens[k]))
		} else {
			out.MTPLoss = append(out.MTPLoss, v/microbatches)
		}
	}
	if m.HasMoE() {
		for k, kind := range balancingKinds {
			if m.MoERouterBalancing.Has(kind.config) {
				out.Balancing = append(out.Balancing, Figure{kind.figure, e.Sums.Balancing[k] / microbatches * f.pooled(kind.config)})
			}
		}
	}
	if m.HasMoE() && m.MoEZLossCoeff != 0 {
		v := e.Sums.ZLoss / microbatches
		out.ZLoss = &v
	}
	out.PerLayer = f.perLayer(e.Sums.Routers, microbatches)
	out.Finite = finite(out.LMLoss) && finite(out.GradNorm)
	f.steps = append(f.steps, out)
	return out, f.timing(e.Sums.Tokens)
}

// perLayer are the losses of each router under Megatron's names: decoder layers count from 0, depths go on behind them, and
// a layer that all depths share is one.
func (f *figures) perLayer(sums map[string][4]float64, microbatches float64) []Figure {
	m := &f.s.Model
	if !m.MoEPerLayerLogging || !m.HasMoE() {
		return nil
	}
	slots := make([][4]float64, m.NumLayers+m.MTPNumLayers)
	has := make([]bool, len(slots))
	for _, scope := range routers(m) {
		slot := slotOf(scope, m)
		has[slot] = true
		for k, v := range sums[scope] {
			slots[slot][k] += v / microbatches
		}
	}
	var out []Figure
	for slot, losses := range slots {
		for k, kind := range balancingKinds {
			if has[slot] && m.MoERouterBalancing.Has(kind.config) {
				out = append(out, Figure{fmt.Sprintf("moe/%s_layer_%d", kind.figure, slot), losses[k] * f.pooled(kind.config)})
			}
		}
		if has[slot] && m.MoEZLossCoeff != 0 {
			out = append(out, Figure{fmt.Sprintf("moe/z_loss_layer_%d", slot), losses[3]})
		}
	}
	return out
}

// slotOf is the place of a router in Megatron's vector of losses.
func slotOf(scope string, m *config.Model) int {
	kind, number, _ := strings.Cut(scope, ".")
	n, _ := strconv.Atoi(number)
	switch {
	case kind == "layer":
		return n
	case m.MTPUseRepeatedLayer:
		return m.NumLayers
	}
	return m.NumLayers + n - 1
}

// pooled is what the mean over replicas multiplies: of global balancing every replica has a part of the pool's loss.
func (f *figures) pooled(kind string) float64 {
	if kind == "global_aux_loss" {
		return float64(f.s.DataParallel())
	}
	return 1
}

func (f *figures) timing(tokens int64) Timing {
	now := f.now()
	took := now.Sub(f.last).Seconds()
	f.last = now
	f.tokens += tokens
	spent := f.compute.Load()
	t := Timing{StepMs: took * 1e3, ComputeMs: float64(spent-f.known) / 1e6, DoneSteps: len(f.steps), Steps: f.s.Train.TrainIters}
	f.known = spent
	if took > 0 {
		t.TokensPerS = float64(tokens) / took
	}
	return t
}

func (f *figures) eval(e messages.EvalReport) EvalFigures {
	out := EvalFigures{Step: e.Step + 1, LMLoss: ratio(e.Sums.LMLoss, e.Sums.LMTokens), Tokens: e.Sums.LMTokens}
	f.evals = append(f.evals, out)
	f.last = f.now() // validation is no part of the next step's time
	return out
}

// tokensPerS is over the steps alone.
func (f *figures) tokensPerS() float64 {
	if took := f.last.Sub(f.started).Seconds(); took > 0 {
		return float64(f.tokens) / took
	}
	return 0
}

func ratio(sum float64, n int64) float64 { return sum / float64(max(n, 1)) }

func finite(v float64) bool { return v-v == 0 }
