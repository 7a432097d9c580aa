package train

// Position is how far a run has come: what a checkpoint keeps besides tensors. It is the same on every rank. Random
// draws and batches are pure functions of it and of the seed.
type Position struct {
	Iteration int   `json:"iteration"`              // steps done, skipped ones too
	Samples   int64 `json:"consumed_train_samples"` // rows taken from the data
	Updates   int   `json:"optimizer_steps"`        // updates of the weights
}
