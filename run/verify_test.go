package run_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/golden"
	"phalanx/mesh"
	"phalanx/run"
)

// cases are the reference cases of this version.
var cases = []string{"dense", "dense-tied", "dense-mtp", "dense-mtp-nolossmask", "moe-mtp", "moe-mtp-nomask", "moe-mtp-allpad",
	"moe-pertoken", "moe-repeated", "sft-answer-only", "tied-mtp"}

// layouts are those that every case takes.
var layouts = []run.VerifyOptions{
	{},
	{Sizes: mesh.Sizes{TP: 2}},
	{Sizes: mesh.Sizes{TP: 2}, SP: true},
	{Sizes: mesh.Sizes{DP: 2}},
	{Sizes: mesh.Sizes{TP: 2, DP: 2}, SP: true},
}

func casePath(t *testing.T, name string) string {
	t.Helper()
	dir, err := golden.Dir()
	require.NoError(t, err)
	return dir + "/" + name + ".json"
}

func verified(t *testing.T, name string, v run.VerifyOptions) *run.VerifyResult {
	t.Helper()
	r, err := run.Verify(context.Background(), casePath(t, name), v)
	require.NoError(t, err)
	for _, q := range r.Quantities {
		require.True(t, q.OK(), "%s: error %g above %g at %s", q.Name, q.Error, q.Tolerance, q.Where)
		require.Positive(t, q.Compared, q.Name)
	}
	require.True(t, r.OK)
	return r
}

// Every case holds on every layout, in both types, and over NATS and in memory with equal bits.
func TestReferenceCases(t *testing.T) {
	for _, name := range cases {
		for _, v := range layouts {
			for _, dtype := range []string{"fp64", "fp32"} {
				t.Run(fmt.Sprintf("%s/tp%d_dp%d_sp%v/%s", name, max(v.Sizes.TP, 1), max(v.Sizes.DP, 1), v.SP, dtype), func(t *testing.T) {
					v := v
					v.DType = dtype
					nats := verified(t, name, v)
					v.Overrides = []string{"transport.colocated=direct"}
					direct := verified(t, name, v)
					require.Equal(t, "direct", direct.Report.Transport)
					require.Equal(t, nats.Report.WeightsSHA256, direct.Report.WeightsSHA256)
				})
			}
		}
	}
}
