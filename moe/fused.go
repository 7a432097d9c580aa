package moe

import "phalanx/tensor/kernel"

// fusedRow is routeRow for softmax scores without groups or bias (moe_router_fusion): one pass from the logits of row
// i to its scores, its choice, their probabilities and what the balancing losses count. The scores' order is the logits'
// order, so one top-k serves the choice and the count.
func (r *Router[T]) fusedRow(s *routerSaved[T], i int) {
	e := s.logits.Cols
	logits, shares, scores := s.logits.Row(i), s.shares[i*e:(i+1)*e], s.scores[i*e:(i+1)*e]
	experts, probs := s.route.Expert[i*r.K:(i+1)*r.K], s.route.Prob[i*r.K:(i+1)*r.K]
	topK(experts, logits)
	mx := float64(logits[experts[0]])
	total, chosen := 0.0, 0.0
	for x, v := range logits {
		shares[x] = kernel.Exp(float64(v) - mx)
		total += shares[x]
	}
	for _, x := range experts {
		chosen += shares[x]
	}
	if r.PreSoftmax {
		chosen = total
	}
	for j, x := range experts {
		probs[j] = T(shares[x] / chosen * r.scaling())
	}
	for x, v := range shares {
		shares[x] = v / total
		scores[x] = shares[x]
	}
	s.lse[i] = mx + kernel.Log(total)
	copy(s.best[i*r.K:(i+1)*r.K], experts)
}
