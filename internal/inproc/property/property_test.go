package property

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCheckRepeatsItself(t *testing.T) {
	if v := flag.Lookup("rapid.checks").Value.String(); v != "100" {
		t.Skip("-rapid.checks or its variable is given")
	}
	var runs [2][]uint64
	for i := range runs {
		Check(t, 8, func(t *rapid.T) { runs[i] = append(runs[i], rapid.Uint64().Draw(t, "x")) })
	}
	require.Len(t, runs[0], 8/share)
	require.Equal(t, runs[0], runs[1])
	require.Equal(t, "100", flag.Lookup("rapid.checks").Value.String(), "the flag is as before")
}

func TestGivenFlagsAreObeyed(t *testing.T) {
	f := flag.Lookup("rapid.checks")
	old := f.Value.String()
	require.NoError(t, flag.Set("rapid.checks", "3"))
	defer func() { require.NoError(t, flag.Set("rapid.checks", old)) }()
	n := 0
	Check(t, 7, func(*rapid.T) { n++ })
	require.Equal(t, 3, n)
	require.Equal(t, "RAPID_SEED", variable("rapid.seed"))
}
