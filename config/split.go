package config

import (
	"math"
	"strconv"
	"strings"
)

// ParseSplit reads Megatron's split, up to three weights with commas between them for training, validation and test, as
// shares that sum to 1. What is missing is 0. ok is false if it is none.
func ParseSplit(text string) (shares [3]float64, ok bool) {
	parts, sum := strings.Split(text, ","), 0.0
	if len(parts) > len(shares) {
		return shares, false
	}
	for i, part := range parts {
		w, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(w >= 0) || math.IsInf(w, 0) {
			return shares, false
		}
		shares[i] = w
		sum += w
	}
	if !(shares[0] > 0) || math.IsInf(sum, 0) {
		return shares, false
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares, true
}
