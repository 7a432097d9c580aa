package nn

import "phalanx/tensor/kernel"

// Smoothing is the share s of a target that all V ids have alike with Megatron-Core's label_smoothing factor f:
// s = f·V/(V−1). The loss is (1−s)·cross entropy − s·mean over the vocabulary of the log probabilities, so that the target
// itself has 1−f and every other id f/(V−1).
func Smoothing(factor float64, vocabulary int) float64 {
	return factor * float64(vocabulary) / float64(vocabulary-1)
}

// smooth turns the label's l − max, zero if it is another rank's, into this rank's part of the target's mean of l − max.
func (h *Head[T]) smooth(row []T, most T, target *T) {
	s := T(h.Smoothing)
	sum := kernel.Sum(row) - T(T(len(row))*most)
	*target = T((1-s)**target) + T(s/T(h.Table.Shape[0])*sum)
}

// smoothGrad takes the target's probabilities away where a target of one label, at l if it is this rank's, has been taken
// away already.
func (h *Head[T]) smoothGrad(row []T, l int, weight T) {
	s := T(h.Smoothing) * weight
	each := s / T(h.Table.Shape[0])
	for i := range row {
		row[i] -= each
	}
	if l >= 0 && l < len(row) {
		row[l] += s
	}
}
