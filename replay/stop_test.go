package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePoint(t *testing.T) {
	for text, want := range map[string]Point{
		"before-send": {"before-send", 1}, "after-send:12": {"after-send", 12}, "mtp.1.forward:3": {"mtp.1.forward", 3}, "layer.0.backward": {"layer.0.backward", 1},
	} {
		got, err := ParsePoint(text)
		require.NoError(t, err)
		require.Equal(t, want, *got)
		again, err := ParsePoint(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for text, want := range map[string]string{
		"": `found "", expected one of before-send`, "before": `found "before", expected one of`, "mtp.x.forward": "or a pass of the program as layer.1.forward",
		"before-send:": `found passage "" of before-send, expected a number from 1`, "before-send:-1": `found passage "-1"`,
	} {
		_, err := ParsePoint(text)
		require.ErrorContains(t, err, want)
	}
}
