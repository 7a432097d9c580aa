package telemetry_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/telemetry"
)

// at is the instant of the documented line.
func at() time.Time { return time.Date(2026, 11, 29, 23, 1, 2, 123456000, time.UTC) }

func newConsole(interval int) (*telemetry.Console, *bytes.Buffer) {
	var out bytes.Buffer
	return telemetry.NewConsole(telemetry.ConsoleOptions{Out: &out, LogInterval: interval, Now: at}), &out
}

func iteration(step int) telemetry.Iteration {
	return telemetry.Iteration{Step: step, Steps: 40, Samples: int64(32 * step), Batch: 32, ElapsedMs: 812.4, LR: 3e-4,
		Losses:   []telemetry.Value{{Name: "lm loss", Value: 5.412345}, {Name: "mtp_1 loss", Value: 5.501234}, {Name: "load_balancing_loss", Value: 1.02}},
		GradNorm: 1.234, Tokens: 1024}
}

func TestIterationLineIsMegatrons(t *testing.T) {
	c, out := newConsole(1)
	c.Iteration(iteration(3))
	require.NoError(t, c.Close())
	require.Equal(t, " [2026-11-29 23:01:02.123456] iteration        3/      40 | consumed samples:           96 | "+
		"elapsed time per iteration (ms): 812.4 | learning rate: 3.000000E-04 | global batch size:    32 | "+
		"lm loss: 5.412345E+00 | mtp_1 loss: 5.501234E+00 | load_balancing_loss: 1.020000E+00 | loss scale: 1.0 | "+
		"grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |\n", out.String())
}

func TestLossesThatAreAbsentHaveNoLabel(t *testing.T) {
	c, out := newConsole(1)
	it := iteration(1)
	it.Losses = it.Losses[:1]
	c.Iteration(it)
	require.NotContains(t, out.String(), "mtp_")
	require.NotContains(t, out.String(), "load_balancing_loss")
	require.NotContains(t, out.String(), "z_loss")
}

func TestLogIntervalAverages(t *testing.T) {
	c, out := newConsole(2)
	for step, loss := range []float64{4, 2, 1} {
		it := iteration(step + 1)
		it.Losses = []telemetry.Value{{Name: "lm loss", Value: loss}}
		it.ElapsedMs = float64(100 * (step + 1))
		it.GradNorm = float64(step + 1)
		c.Iteration(it)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), "iteration        2/")
	require.Contains(t, out.String(), "elapsed time per iteration (ms): 150.0 |")
	require.Contains(t, out.String(), "lm loss: 3.000000E+00 |")
	require.Contains(t, out.String(), "grad norm: 2.000 |")
}

func TestNoTokensPrintsANumberAndAnEvent(t *testing.T) {
	c, out := newConsole(1)
	it := iteration(7)
	it.Losses = []telemetry.Value{{Name: "lm loss", Value: math.NaN()}, {Name: "mtp_1 loss", Value: 2}}
	it.NoTokens = true
	c.Iteration(it)
	require.Contains(t, out.String(), "lm loss: 0.000000E+00 | mtp_1 loss: 2.000000E+00 |")
	require.Contains(t, out.String(), "\nno tokens step=7: no label counted in the lm loss, printed as 0\n")
	require.True(t, math.IsNaN(it.Losses[0].Value), "the caller's losses must stay as they are")
}

func TestSkippedAndNaNAreCounted(t *testing.T) {
	c, out := newConsole(3)
	for step := range 3 {
		it := iteration(step + 1)
		it.Losses = []telemetry.Value{{Name: "lm loss", Value: float64(step + 1)}}
		if step == 1 {
			it.Skipped, it.NaN, it.GradNorm = true, true, math.NaN()
			it.Losses[0].Value = math.NaN()
		}
		c.Iteration(it)
	}
	require.Contains(t, out.String(), "lm loss: 2.000000E+00 |", "a skipped iteration has no part in the mean")
	require.Contains(t, out.String(), "number of skipped iterations:   1 | number of nan iterations:   1 |")
}

func TestWhatIsNotFiniteIsWrittenAsPythonDoes(t *testing.T) {
	for value, want := range map[float64][2]string{math.Inf(1): {"INF", "inf"}, math.Inf(-1): {"-INF", "-inf"}} {
		c, out := newConsole(1)
		it := iteration(1)
		it.Losses, it.GradNorm = []telemetry.Value{{Name: "lm loss", Value: value}}, value
		c.Iteration(it)
		require.Contains(t, out.String(), "lm loss: "+want[0]+" |")
		require.Contains(t, out.String(), "grad norm: "+want[1]+" |")
	}
	c, out := newConsole(1)
	it := iteration(1)
	it.Losses, it.GradNorm = []telemetry.Value{{Name: "lm loss", Value: math.NaN()}}, math.NaN()
	c.Iteration(it)
	require.Contains(t, out.String(), "lm loss: NAN |")
	require.Contains(t, out.String(), "grad norm: nan |")
}

func TestValidationLine(t *testing.T) {
	c, out := newConsole(1)
	c.Validation(telemetry.Validation{Step: 10, Losses: []telemetry.Value{{Name: "lm loss", Value: 0.3512455}}, Tokens: 5})
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, " validation loss at iteration 10 | lm loss value: 3.512455E-01 | lm loss PPL: 1.420836E+00 | ", lines[1])
	require.Equal(t, strings.Repeat("-", len(lines[1])+1), lines[0])
	require.Equal(t, lines[0], lines[2])

	c, out = newConsole(1)
	c.Validation(telemetry.Validation{Step: 1, Losses: []telemetry.Value{{Name: "lm loss", Value: 300}}, Tokens: 5})
	require.Contains(t, out.String(), "lm loss PPL: 4.851652E+08 |", "the exponent is capped at 20")

	c, out = newConsole(1)
	c.Validation(telemetry.Validation{Step: 1, Losses: []telemetry.Value{{Name: "lm loss", Value: math.NaN()}}})
	require.Contains(t, out.String(), "lm loss value: 0.000000E+00 | lm loss PPL: 1.000000E+00 |")
	require.Contains(t, out.String(), "no tokens validation step=1")
}

type event string

func (e event) String() string { return string(e) }

func TestEventsTakeOneLine(t *testing.T) {
	c, out := newConsole(1)
	c.Event(event("restart rank=5 incarnation=3\ncause=killed\n"))
	c.Text("a block\nof two lines\n\n")
	require.Equal(t, "restart rank=5 incarnation=3 cause=killed\na block\nof two lines\n", out.String())
}

type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, errors.New("disk full") }

func TestTheFirstErrorOfWritingIsKept(t *testing.T) {
	var b broken
	c := telemetry.NewConsole(telemetry.ConsoleOptions{Out: &b, Now: at})
	c.Iteration(iteration(1))
	c.Iteration(iteration(2))
	require.ErrorContains(t, c.Close(), "disk full")
	require.Equal(t, 1, b.writes)
}
