package bench

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"

	"phalanx/config"
)

//go:embed recovery.yaml
var recoveryScenario []byte

// Death is what the restart of one rank took, in milliseconds.
type Death struct {
	DetectionMs float64 // from the last sign of life
	BackoffMs   float64 // waited on purpose
	RestartMs   float64 // until the rank was there
	ReplayMs    float64 // until it was where it had been
}

// RecoveryOptions say how often.
type RecoveryOptions struct {
	Pairs         int // of runs with the log of sent messages and without
	Steps, Warmup int // of each run
	Kills         int // of ranks in processes of their own; 0: none
	Overrides     []string
	Train         Trainer
	// Deaths runs a scenario with ranks in processes of their own and tells of every restart. Package run, which stands above,
	// is handed in as one.
	Deaths func(ctx context.Context, s config.Scenario) ([]Death, error)
}

// RecoveryResult is what recovery costs while nothing happens, and how long it takes when something does.
type RecoveryResult struct {
	Name      string  `json:"name"`
	Pairs     int     `json:"pairs"`
	WithoutMs float64 `json:"step_ms"`          // median over runs of the median step
	WithMs    float64 `json:"step_with_log_ms"` // the same with the log
	// Ratio is with over without: the median over pairs, and the quartiles.
	Ratio     float64 `json:"ratio"`
	RatioLow  float64 `json:"ratio_q1"`
	RatioHigh float64 `json:"ratio_q3"`

	Deaths    int     `json:"deaths"`
	Recovery  Summary `json:"recovery_ms"` // restart and replay
	Detection Summary `json:"detection_ms"`
}

// Summary is how some times are spread.
type Summary struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	Max float64 `json:"max"`
}

// PairsMin is the least number of pairs whose median says something on a machine with neighbours.
const PairsMin = 20

// Check refuses numbers that cannot be.
func (o RecoveryOptions) Check() error {
	switch {
	case o.Pairs < 1:
		return fmt.Errorf("found %d pairs, expected 1 or more (%d for a figure to quote)", o.Pairs, PairsMin)
	case o.Steps < 1 || o.Warmup < 0:
		return fmt.Errorf("found %d steps after %d to warm up, expected 1 or more after 0 or more", o.Steps, o.Warmup)
	case o.Kills < 0:
		return fmt.Errorf("found %d kills, expected 0 or more", o.Kills)
	}
	return nil
}

// Recovery measures both.
func Recovery(ctx context.Context, o RecoveryOptions) (*RecoveryResult, error) {
	r := &RecoveryResult{Name: "bench-recovery", Pairs: o.Pairs}
	var without, with, ratio []float64
	for i := range o.Pairs {
		var ms [2]float64
		for k := range 2 {
			which := (i + k) % 2 // who is first changes from pair to pair
			var err error
			if ms[which], err = o.step(ctx, which == 1); err != nil {
				return nil, err
			}
		}
		without, with, ratio = append(without, ms[0]), append(with, ms[1]), append(ratio, share(ms[1], ms[0]))
	}
	slices.Sort(ratio)
	r.WithoutMs, r.WithMs, r.Ratio = median(without), median(with), median(ratio)
	r.RatioLow, r.RatioHigh = ratio[len(ratio)/4], ratio[(3*len(ratio))/4]
	return r, o.deaths(ctx, r)
}

// step is the median step of a run. With the log a snapshot is due only behind its end, so that it is the log that is measured.
func (o RecoveryOptions) step(ctx context.Context, log bool) (ms float64, err error) {
	set := []string{"train.train_iters=" + strconv.Itoa(o.Steps+o.Warmup)}
	if log {
		set = append(set, "recovery.snapshot_every="+strconv.Itoa(o.Steps+o.Warmup+1))
	}
	s, err := o.scenario(set)
	if err != nil {
		return 0, err
	}
	c := counter{warmup: o.Warmup, steps: o.Steps}
	if _, err := o.Train(ctx, s, nil, c.step); err != nil {
		return 0, err
	}
	return median(c.ms), nil
}

func (o RecoveryOptions) scenario(set []string) (config.Scenario, error) {
	file, problems := config.Parse("bench-recovery", recoveryScenario, append(set, o.Overrides...))
	if len(problems) > 0 {
		return config.Scenario{}, problems
	}
	return file.Runs()[0], nil
}

// stepsBetweenKills lets a rank that was killed be where it was before the next is.
const stepsBetweenKills = 3

// deaths kills ranks in turns, each in another part of a step.
func (o RecoveryOptions) deaths(ctx context.Context, r *RecoveryResult) error {
	if o.Kills == 0 {
		return nil
	}
	steps := stepsBetweenKills * (o.Kills + 1)
	set := []string{"train.train_iters=" + strconv.Itoa(steps), "recovery.rank_restarts=100000", "recovery.job_restarts=100000", "recovery.restart_window_s=1", "recovery.snapshot_every=2"}
	hooks := []string{"before-send", "after-send", "before-apply"}
	for i := range o.Kills {
		set = append(set, fmt.Sprintf("faults.%d={at: {rank: %d, step: %d, hook: %s, count: %d}, action: kill}", i, i%2, stepsBetweenKills*(i+1), hooks[i%len(hooks)], 1+7*i%40))
	}
	s, err := o.scenario(set)
	if err != nil {
		return err
	}
	all, err := o.Deaths(ctx, s)
	if err != nil {
		return err
	}
	var recovery, detection []float64
	for _, d := range all {
		recovery, detection = append(recovery, d.RestartMs+d.ReplayMs), append(detection, d.DetectionMs)
	}
	r.Deaths, r.Recovery, r.Detection = len(all), summary(recovery), summary(detection)
	return nil
}

// summary takes the nearest ranks.
func summary(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[min(len(values)-1, int(share*float64(len(values))))] }
	return Summary{P50: at(0.5), P95: at(0.95), Max: values[len(values)-1]}
}
