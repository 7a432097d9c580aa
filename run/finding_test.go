package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

// A loss or a gradient that is not a number, under the checks for it, is a finding and no death: the run ends at once with
// exit code 1 and the sentence, and no rank is started again.
func TestAFindingIsNoDeath(t *testing.T) {
	const nanLoss = "probe={token_loss: {lm: [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, .nan, 4, 5, 6, 7, 8]]}}"
	for name, c := range map[string]struct {
		set      []string
		sentence string
	}{
		"loss": {[]string{"train.check_for_nan_in_loss=true", "mutate=[]", "dataset.rows=[{valid: 8}]", nanLoss},
			`rank 1 found NaN in the lm loss of microbatch 1 in iteration 1; train\.check_for_nan_in_loss: false lets the run go on`},
		"gradient": {[]string{"ddp.check_for_nan_in_grad=true"},
			`rank 1 found NaN in the gradient of model\.embed_tokens\.weight, element 0 of its shard, in iteration 2, before the gradients are added over ranks`},
	} {
		for procs, transport := range map[int]string{0: "direct", 2: "nats"} {
			t.Run(name+"/"+transport, func(t *testing.T) {
				if procs > 0 && testing.Short() {
					t.Skip("it starts processes")
				}
				f, problems := config.Load("../docs/scenarios/skipped-step.yaml", append(c.set, "recovery.snapshot_every=1", "transport.kind="+transport,
					"train.skip_nan_steps=false", "train.threads=1", "expect=[{quantity: lm.loss, finite: true}]"))
				require.Empty(t, problems)
				report, err := Execute(t.Context(), f.Runs()[0], Options{Procs: procs})
				require.Regexp(t, c.sentence, err.Error())
				require.NotContains(t, err.Error(), "panic")
				require.Equal(t, ExitFailed, ExitCode(err))
				require.Zero(t, report.Restarts)
			})
		}
	}
}
