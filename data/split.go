package data

import (
	"fmt"
	"math"

	"phalanx/config"
)

// heldOut is what the second and the third part of a split are for.
var heldOut = [2]string{"for validation", "for test"}

// cuts are where the parts of n things lie: training [at 0, at 1), validation [at 1, at 2), test [at 2, at 3).
type cuts [4]int

// cutsOf cuts n tokens, documents or sequences as dataset.split or dataset.validation_share says. A split rounds as
// Megatron does: the ends are the cumulative shares of n, to the nearest even number if halfway.
func cutsOf(d config.Dataset, n int) cuts {
	if d.Split == "" {
		return cuts{0, n - int(d.ValidationShare*float64(n)), n, n}
	}
	shares, _ := config.ParseSplit(d.Split) // the scenario has been validated
	at, sum := cuts{}, 0.0
	for i, share := range shares {
		sum += share
		if at[i+1] = min(int(math.RoundToEven(sum*float64(n))), n); shares[1]+shares[2] == 0 || i > 0 && shares[2] == 0 {
			at[i+1] = n // no later part gets what rounding leaves
		}
	}
	at[3] = n
	return at
}

// String is the parts in a summary. A test part is only there with a split that has one.
func (c cuts) String() string {
	text := fmt.Sprintf("%d for training, %d for validation", c[1], c[2]-c[1])
	if c[3] > c[2] {
		text += fmt.Sprintf(", %d for test", c[3]-c[2])
	}
	return text
}

// wantsValidation says whether the scenario asks for a part for validation.
func wantsValidation(d config.Dataset) bool {
	if d.Split == "" {
		return d.ValidationShare > 0
	}
	shares, _ := config.ParseSplit(d.Split)
	return shares[1] > 0
}

// splitWords is how the scenario splits its data.
func splitWords(d config.Dataset) string {
	if d.Split != "" {
		return "split " + d.Split
	}
	return fmt.Sprintf("validation_share %g", d.ValidationShare)
}
