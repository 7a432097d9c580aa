package telemetry_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/telemetry"
)

// Log parsers of Megatron split at "|" and match "label: number", or search the whole line for one label.
var (
	headPattern = regexp.MustCompile(`^ \[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6})\] iteration\s+(\d+)\s*/\s*(\d+) \|`)
	pairPattern = regexp.MustCompile(`^\s*([A-Za-z0-9_ ()]+?):\s+([-+0-9.E]+)\s*$`)
	lossPattern = regexp.MustCompile(`lm loss: ([0-9.]+E[+-][0-9]+)`)
	timePattern = regexp.MustCompile(`elapsed time per iteration \(ms\): ([0-9.]+)`)
	evalPattern = regexp.MustCompile(`validation loss at iteration (\d+) \| lm loss value: ([0-9.]+E[+-]\d+) \| lm loss PPL: ([0-9.]+E[+-]\d+)`)
)

// parseLine reads an iteration line the way such a parser does.
func parseLine(t *testing.T, line string) map[string]float64 {
	t.Helper()
	head := headPattern.FindStringSubmatch(line)
	require.NotNil(t, head, "no head in %q", line)
	step, err := strconv.Atoi(head[2])
	require.NoError(t, err)
	out := map[string]float64{"iteration": float64(step)}
	for _, part := range strings.Split(strings.TrimSuffix(line, "|"), "|")[1:] {
		pair := pairPattern.FindStringSubmatch(part)
		require.NotNil(t, pair, "no pair in %q", part)
		v, err := strconv.ParseFloat(pair[2], 64)
		require.NoError(t, err)
		out[pair[1]] = v
	}
	return out
}

func TestParsersReadTheLine(t *testing.T) {
	c, out := newConsole(1)
	it := iteration(3)
	it.Losses = append(it.Losses, telemetry.Value{Name: "z_loss", Value: 0.25})
	c.Iteration(it)
	line := strings.TrimRight(out.String(), "\n")
	require.Equal(t, map[string]float64{"iteration": 3, "consumed samples": 96, "elapsed time per iteration (ms)": 812.4,
		"learning rate": 3e-4, "global batch size": 32, "lm loss": 5.412345, "mtp_1 loss": 5.501234,
		"load_balancing_loss": 1.02, "z_loss": 0.25, "loss scale": 1, "grad norm": 1.234,
		"number of skipped iterations": 0, "number of nan iterations": 0}, parseLine(t, line))
	require.Equal(t, "5.412345E+00", lossPattern.FindStringSubmatch(line)[1])
	require.Equal(t, "812.4", timePattern.FindStringSubmatch(line)[1])
}

func TestParsersReadTheOrder(t *testing.T) {
	c, out := newConsole(1)
	it := iteration(12345678)
	it.Steps, it.Samples = 23456789, 123456789012
	c.Iteration(it)
	labels := []string{" iteration 12345678/23456789 |", " consumed samples: 123456789012 |", " elapsed time per iteration (ms): ",
		" learning rate: ", " global batch size:    32 |", " lm loss: ", " mtp_1 loss: ", " load_balancing_loss: ", " loss scale: 1.0 |",
		" grad norm: ", " number of skipped iterations:   0 |", " number of nan iterations:   0 |"}
	from := 0
	for _, l := range labels {
		i := strings.Index(out.String()[from:], l)
		require.GreaterOrEqual(t, i, 0, "%q is missing or out of order", l)
		from += i
	}
}

func TestParsersReadTheValidationLine(t *testing.T) {
	c, out := newConsole(1)
	c.Validation(telemetry.Validation{Step: 10, Losses: []telemetry.Value{{Name: "lm loss", Value: 0.3512455}}, Tokens: 5})
	require.Equal(t, []string{"10", "3.512455E-01", "1.420836E+00"}, evalPattern.FindStringSubmatch(out.String())[1:])
}

func TestParsersGetANumberWithoutTokens(t *testing.T) {
	c, out := newConsole(1)
	it := iteration(1)
	it.NoTokens = true
	c.Iteration(it)
	require.Zero(t, parseLine(t, strings.Split(out.String(), "\n")[0])["lm loss"])
}
