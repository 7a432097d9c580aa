package bench

import (
	"context"
	_ "embed"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"phalanx/config"
	"phalanx/tensor/kernel"
)

//go:embed step.yaml
var stepScenario []byte

// peakLength is one measurement of the peak around a run: long enough to see a throttled clock.
const peakLength = 200 * time.Millisecond

// Trainer trains a scenario, tells of every finished step with the time it took, and returns the process's peak
// resident memory in bytes. clock is what Took.ComputeMs is measured by, on the
// one thread that then computes; nil: wall clock, turns as they come. Package run, which stands above, is
// handed in as one.
type Trainer func(ctx context.Context, s config.Scenario, clock func() time.Duration, step func(Took)) (peakRSS int64, err error)

// Took is the time of one step.
type Took struct {
	Ms        float64
	ComputeMs float64 // that all ranks together spent computing
}

// StepOptions say what is trained, and for how long.
type StepOptions struct {
	Steps, Warmup int
	Threads       int
	CP            int      // context-parallel ranks; more than 1 compares them with one rank
	Overrides     []string // section.key=value, after everything else
	Train         Trainer
	Now           Clock
	clocks        clocks // of the comparison; none: this process's and its threads'
}

// StepResult is what a training step costs. FLOP figures are nil for models that the formula is not for.
type StepResult struct {
	Name           string   `json:"name"`
	Model          string   `json:"model"`
	Kernel         string   `json:"kernel"`
	Threads        int      `json:"threads"`
	Warmup         int      `json:"warmup_steps"`
	Steps          int      `json:"steps"`
	TokensPerStep  int      `json:"tokens_per_step"`
	Parameters     int64    `json:"parameters"`
	MedianMs       float64  `json:"median_step_ms"`
	BestMs         float64  `json:"best_step_ms"`
	TokensPerS     float64  `json:"tokens_per_s"` // of the median step
	BestTokensPerS float64  `json:"best_tokens_per_s"`
	FlopsPerToken  *float64 `json:"model_flops_per_token,omitempty"`
	ModelGFlops    *float64 `json:"model_gflops,omitempty"` // per second, of the median step
	PeakBefore     float64  `json:"fma_peak_before_gflops"`
	PeakAfter      float64  `json:"fma_peak_after_gflops"`
	Share          *float64 `json:"share,omitempty"` // of the mean of both peaks
	CPUShare       float64  `json:"cpu_share"`       // processor time ÷ (wall clock · threads): far below 1, others kept this machine busy
	PeakRSSBytes   int64    `json:"peak_rss_bytes"`
	HeapCount      float64  `json:"heap_allocations_per_step"`
	HeapBytes      float64  `json:"heap_bytes_per_step"`
	Split          *Split   `json:"split,omitempty"`
}

// Scenario is the scenario to train: the built-in one with the options' values and overrides.
func (o StepOptions) Scenario() (config.Scenario, error) {
	set := []string{"train.train_iters=" + strconv.Itoa(o.Steps+o.Warmup), "train.threads=" + strconv.Itoa(o.Threads)}
	file, problems := config.Parse("bench-step", stepScenario, append(set, o.Overrides...))
	if len(problems) > 0 {
		return config.Scenario{}, problems
	}
	return file.Runs()[0], nil
}

// Step trains the scenario and says what a step costs.
func Step(ctx context.Context, o StepOptions) (*StepResult, error) {
	s, err := o.Scenario()
	if err != nil {
		return nil, err
	}
	o.Steps = s.Train.TrainIters - o.Warmup
	if o.Steps < 1 {
		return nil, fmt.Errorf("train.train_iters is %d with %d warm-up steps; expected at least one step after them", s.Train.TrainIters, o.Warmup)
	}
	threads := s.Train.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	r := &StepResult{Name: s.Name, Model: modelText(&s), Kernel: kernel.Active().String(), Threads: threads, Warmup: o.Warmup,
		Steps: o.Steps, TokensPerStep: s.Train.GlobalBatchSize * s.Dataset.SeqLength, Parameters: s.Model.Parameters()}
	peak := newPeakMeter(kernel.Active(), threads, peakLength, o.Now)
	r.PeakBefore = peak.flops() / giga
	c := counter{warmup: o.Warmup, steps: o.Steps}
	if r.PeakRSSBytes, err = o.Train(ctx, s, nil, c.step); err != nil {
		return nil, err
	}
	r.PeakAfter = peak.flops() / giga
	r.HeapCount, r.HeapBytes = c.heapPerStep()
	r.CPUShare = c.cpuShare(threads)
	if err := r.figures(&s, c.ms); err != nil || o.CP <= 1 {
		return r, err
	}
	r.Split, err = split(ctx, o)
	return r, err
}

// figures fills what follows from the times of the steps.
func (r *StepResult) figures(s *config.Scenario, ms []float64) error {
	if len(ms) != r.Steps {
		return fmt.Errorf("the run told of %d steps after the warm-up, expected %d", len(ms), r.Steps)
	}
	r.MedianMs, r.BestMs = median(ms), ms[0]
	for _, v := range ms {
		r.BestMs = min(r.BestMs, v)
	}
	tokens := float64(r.TokensPerStep)
	r.TokensPerS, r.BestTokensPerS = rate(tokens, r.MedianMs/1e3), rate(tokens, r.BestMs/1e3)
	if s.Model.HasMoE() || s.Model.MTPNumLayers > 0 {
		return nil
	}
	perToken := FlopsPerToken(&s.Model, s.Dataset.SeqLength)
	model := perToken * r.TokensPerS / giga
	of := share(model, (r.PeakBefore+r.PeakAfter)/2)
	r.FlopsPerToken, r.ModelGFlops, r.Share = &perToken, &model, &of
	return nil
}

// FlopsPerToken is 6·N + 12·L·h·S: forward and backward of a dense decoder, N being its parameters without position
// tables (RoPE has none), L layers, h hidden size, S sequence length.
func FlopsPerToken(m *config.Model, seq int) float64 {
	return 6*float64(m.Parameters()) + 12*float64(m.NumLayers)*float64(m.HiddenSize)*float64(seq)
}

// counter counts steps, heap allocations and processor time between the last warm-up step and the last step.
type counter struct {
	warmup, steps  int
	seen           int
	ms, computeMs  []float64
	from, to       runtime.MemStats
	cpuFrom, cpuTo time.Duration
	cpu            func() time.Duration // nil: cpuTime
}

func (c *counter) step(t Took) {
	c.seen++
	if c.seen > c.warmup {
		c.ms, c.computeMs = append(c.ms, t.Ms), append(c.computeMs, t.ComputeMs)
	}
	if c.seen == c.warmup {
		runtime.ReadMemStats(&c.from)
		c.cpuFrom = c.processor()
	}
	if c.seen == c.warmup+c.steps {
		runtime.ReadMemStats(&c.to)
		c.cpuTo = c.processor()
	}
}

func (c *counter) processor() time.Duration {
	if c.cpu != nil {
		return c.cpu()
	}
	return cpuTime()
}

// heapPerStep is allocations and bytes; without a warm-up they include the start of the run.
func (c *counter) heapPerStep() (count, bytes float64) {
	n := float64(max(c.steps, 1))
	return float64(c.to.Mallocs-c.from.Mallocs) / n, float64(c.to.TotalAlloc-c.from.TotalAlloc) / n
}

// cpuShare is processor time over wall clock and threads.
func (c *counter) cpuShare(threads int) float64 {
	wallMs := 0.0
	for _, v := range c.ms {
		wallMs += v
	}
	return share((c.cpuTo-c.cpuFrom).Seconds()*1e3, wallMs*float64(threads))
}

// modelText is the model in a line.
func modelText(s *config.Scenario) string {
	m := &s.Model
	tied, mlp := "tied", fmt.Sprintf("%s %d", m.ActivationFunc, m.FFNHiddenSize)
	if m.UntieEmbeddings {
		tied = "untied"
	}
	if m.GatedLinearUnit {
		mlp = "gated " + mlp
	}
	return fmt.Sprintf("%d layers, hidden %d, %d heads, V %d %s, S %d, B %d, %s, %s, AdamW", m.NumLayers, m.HiddenSize,
		m.NumAttentionHeads, m.PaddedVocabSize, tied, s.Dataset.SeqLength, s.Train.GlobalBatchSize, mlp, s.Train.DType)
}
