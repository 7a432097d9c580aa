package main

import (
	"fmt"

	"phalanx/messages"
	"phalanx/run"
	"phalanx/telemetry"
)

// listener prints on the console what a run tells. That a rank has finished is no news: the last line says that all have.
func listener(c *telemetry.Console) run.Listener {
	return run.Listener{
		Step: func(s run.StepFigures, t run.Timing) { c.Iteration(iterationOf(s, t)) },
		Eval: func(e run.EvalFigures) { c.Validation(validationOf(e)) },
		Event: func(e messages.Event) {
			if _, expected := e.(messages.Finished); !expected {
				c.Event(e)
			}
		},
		Saved: func(path string, step int) { c.Event(saved{path, step}) },
	}
}

// iterationOf is a step as the console's line wants it.
func iterationOf(s run.StepFigures, t run.Timing) telemetry.Iteration {
	return telemetry.Iteration{Step: s.Step, Steps: t.Steps, Samples: s.Samples, Batch: s.Batch, ElapsedMs: t.StepMs, LR: s.LR,
		Losses: losses(s), GradNorm: s.GradNorm, Tokens: s.Tokens, NoTokens: s.LMTokens == 0, NaN: !s.Finite, Skipped: s.Skipped}
}

// losses are the losses of a step in Megatron's order.
func losses(s run.StepFigures) []telemetry.Value {
	out := []telemetry.Value{{Name: "lm loss", Value: s.LMLoss}}
	for k, v := range s.MTPLoss {
		out = append(out, telemetry.Value{Name: fmt.Sprintf("mtp_%d loss", k+1), Value: v})
	}
	for _, b := range s.Balancing {
		out = append(out, telemetry.Value{Name: b.Name, Value: b.Value})
	}
	if s.ZLoss != nil {
		out = append(out, telemetry.Value{Name: "z_loss", Value: *s.ZLoss})
	}
	return out
}

func validationOf(e run.EvalFigures) telemetry.Validation {
	return telemetry.Validation{Step: e.Step, Losses: []telemetry.Value{{Name: "lm loss", Value: e.LMLoss}}, Tokens: e.Tokens}
}

// saved is the event of a written checkpoint.
type saved struct {
	path string
	step int
}

func (s saved) String() string {
	return fmt.Sprintf("saved checkpoint step=%d path=%s", s.step, s.path)
}
