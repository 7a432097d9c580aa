package messages

import "fmt"

// Event is what a rank or its supervisors report. Console, JSON report and tests are listeners.
type Event interface {
	// String is one line.
	String() string
}

// Sums are one rank's additive share of a step's figures. The sum over ranks, in ascending rank order, is the
// step's figure: a rank contributes only what no other rank contributes too (tp rank 0 reports the losses).
type Sums struct {
	LMLoss    float64   // Σ masked cross entropy
	LMTokens  int64     // Σ loss mask
	MTPLoss   []float64 // per depth: Σ over microbatches of masked means; with per-token loss Σ masked cross entropy
	MTPTokens []int64   // per depth: Σ rolled loss mask
	// Balancing is, by kind (aux, seq_aux, global_aux), Σ over microbatches and layers of the loss before its
	// coefficient, per contributing layer.
	Balancing [3]float64
	ZLoss     float64 // the same for the z loss
	// Routers is, by scope ("layer.0", "mtp.1"), Σ over microbatches of its losses by kind, then z; nil: not asked for.
	Routers map[string][4]float64
	Samples int64 // rows
	Tokens  int64 // positions, padding included
}

// Add adds o to s.
func (s *Sums) Add(o Sums) {
	s.LMLoss += o.LMLoss
	s.LMTokens += o.LMTokens
	for k, v := range o.Balancing {
		s.Balancing[k] += v
	}
	s.ZLoss += o.ZLoss
	s.addRouters(o.Routers)
	s.Samples += o.Samples
	s.Tokens += o.Tokens
	for len(s.MTPLoss) < len(o.MTPLoss) {
		s.MTPLoss = append(s.MTPLoss, 0)
		s.MTPTokens = append(s.MTPTokens, 0)
	}
	for k := range o.MTPLoss {
		s.MTPLoss[k] += o.MTPLoss[k]
		s.MTPTokens[k] += o.MTPTokens[k]
	}
}

// addRouters adds losses of routers, kind by kind.
func (s *Sums) addRouters(o map[string][4]float64) {
	if s.Routers == nil && o != nil {
		s.Routers = make(map[string][4]float64, len(o))
	}
	for scope, losses := range o {
		sum := s.Routers[scope]
		for k, v := range losses {
			sum[k] += v
		}
		s.Routers[scope] = sum
	}
}

// StepDone is one rank's report of one optimizer step. GradNorm, LR and Skipped are the same on every rank.
type StepDone struct {
	Rank, Step int // step is 0-based
	Sums       Sums
	GradNorm   float64
	LR         float64
	Skipped    bool // the gradient is not finite, and no weight has changed
}

func (e StepDone) String() string {
	return fmt.Sprintf("step done rank=%d step=%d grad_norm=%.6g", e.Rank, e.Step, e.GradNorm)
}

// EvalDone is one rank's report of one validation pass after Step.
type EvalDone struct {
	Rank, Step int
	Sums       Sums
}

func (e EvalDone) String() string { return fmt.Sprintf("eval done rank=%d step=%d", e.Rank, e.Step) }

// Saved is one rank's report that its part of a checkpoint is on the disk, or why it is not.
type Saved struct {
	Rank, Step int    // steps done
	Part       []byte // of the manifest, as package checkpoint encodes it
	Err        string
}

func (e Saved) String() string {
	if e.Err != "" {
		return fmt.Sprintf("not saved rank=%d step=%d: %s", e.Rank, e.Step, e.Err)
	}
	return fmt.Sprintf("saved rank=%d step=%d", e.Rank, e.Step)
}

// SaveReport is the merged report of a checkpoint: every rank has written its part, or one could not.
type SaveReport struct {
	Step  int
	Parts [][]byte // in rank order
	Err   string   // of the first rank that could not
}

func (e SaveReport) String() string {
	return fmt.Sprintf("save report step=%d parts=%d", e.Step, len(e.Parts))
}

// StepReport is the merged report of one step: every rank has finished it.
type StepReport struct {
	Step     int
	Sums     Sums
	GradNorm float64
	LR       float64
	Skipped  bool
}

func (e StepReport) String() string {
	return fmt.Sprintf("step report step=%d lm_tokens=%d grad_norm=%.6g", e.Step, e.Sums.LMTokens, e.GradNorm)
}

// EvalReport is the merged report of one validation pass.
type EvalReport struct {
	Step int
	Sums Sums
}

func (e EvalReport) String() string {
	return fmt.Sprintf("eval report step=%d lm_tokens=%d", e.Step, e.Sums.LMTokens)
}

// Shards are parameters of one rank on their way to another process, as the receiver's package run writes them.
type Shards struct {
	Rank, Step int // steps done
	What       string
	Body       []byte
}

func (e Shards) String() string {
	return fmt.Sprintf("shards rank=%d step=%d %s bytes=%d", e.Rank, e.Step, e.What, len(e.Body))
}

// Finished says that a rank has run its program to its end.
type Finished struct{ Rank int }

func (e Finished) String() string { return fmt.Sprintf("finished rank=%d", e.Rank) }

// Restarted says that a rank was started again after a failure and is where it was when it failed.
type Restarted struct {
	Rank        int
	Incarnation uint32  // of its present life
	Cause, At   string  // of the last failure
	Replayed    int     // messages that it was given again
	Dropped     int     // messages that came to it again and were dropped
	Ms          float64 // from the failure
}

func (e Restarted) String() string {
	return fmt.Sprintf("restart rank=%d incarnation=%d cause=%s at=%s replayed=%d dropped=%d in %.0f ms", e.Rank, e.Incarnation, e.Cause, e.At,
		e.Replayed, e.Dropped, e.Ms)
}
