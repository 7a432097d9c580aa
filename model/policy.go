package model

import "fmt"

// LossError says that a loss is not a number, under train.check_for_nan_in_loss.
type LossError struct {
	Rank, Step int // step is 0-based
	Microbatch int // of the whole step
	Depth      int // 0: the LM loss
	Value      float64
}

func (e *LossError) Error() string {
	term := "lm loss"
	if e.Depth > 0 {
		term = fmt.Sprintf("mtp_%d loss", e.Depth)
	}
	return fmt.Sprintf("rank %d found %v in the %s of microbatch %d in iteration %d; train.check_for_nan_in_loss: false lets the run go on, "+
		"train.skip_nan_microbatches: true drops the microbatch", e.Rank, e.Value, term, e.Microbatch, e.Step+1)
}

// Finding implements nn.Finding.
func (*LossError) Finding() {}

// checkGrads ends the run at a gradient that is not a number, under ddp.check_for_nan_in_grad: one of a layer's, if it is
// reduced before the others, or with −1 of the others.
func (r *Rank[T]) checkGrads(step, layer int) {
	if !r.env.Scenario.DDP.CheckForNaNInGrad {
		return
	}
	if err := r.grads.CheckFinite(step, layer); err != nil {
		panic(err)
	}
}
