package telemetry_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/telemetry"
)

// ticking is a clock that a test sets.
type ticking struct{ at time.Time }

func (c *ticking) now() time.Time { return c.at }

func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	clock := &ticking{at: at()}
	p := telemetry.NewProgress(&out, clock.now)
	it := iteration(4)
	it.ElapsedMs = 2000
	p.Step(it)
	require.Equal(t, "\r\x1b[K 4/40  10 %   2000.0 ms/step   512 tokens/s   0:01:12 left", out.String())

	out.Reset()
	it.Step = 5
	p.Step(it)
	require.Empty(t, out.String(), "no second drawing at the same instant")

	clock.at = clock.at.Add(100 * time.Millisecond)
	it.Step, it.ElapsedMs = 6, 8000
	p.Step(it)
	require.Equal(t, "\r\x1b[K 6/40  15 %   4000.0 ms/step   128 tokens/s   0:02:16 left", out.String())
}

func TestProgressGetsOutOfTheWay(t *testing.T) {
	var out bytes.Buffer
	p := telemetry.NewProgress(&out, at)
	c := telemetry.NewConsole(telemetry.ConsoleOptions{Out: &out, LogInterval: 1, Now: at, Progress: p})
	c.Iteration(iteration(1))
	c.Iteration(iteration(2))
	require.Equal(t, "\n\r\x1b[K 1/40   2 %   812.4 ms/step   1260 tokens/s   0:00:32 left\r\x1b[K [", between(out.String(), "nan iterations:   0 |", "2026-11-29 23:01:02.123456] iteration        2/"))

	out.Reset()
	_, err := p.Write([]byte("WARN a log line\n"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out.String(), "\r\x1b[KWARN a log line\n\r\x1b[K 2/40"))

	require.NoError(t, c.Close())
	out.Reset()
	_, err = p.Write([]byte("after\n"))
	require.NoError(t, err)
	require.Equal(t, "after\n", out.String())
}

// between is the text after the first from and before the next to.
func between(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	s, _, _ = strings.Cut(s, to)
	return s
}

func TestNoProgressWithoutATerminal(t *testing.T) {
	c, out := newConsole(1)
	c.Iteration(iteration(1))
	require.NoError(t, c.Close())
	require.NotContains(t, out.String(), "\x1b")
	require.NotContains(t, out.String(), "\r")
}

func TestJSONLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	j, err := telemetry.OpenJSON(path, nil)
	require.NoError(t, err)
	require.NoError(t, j.Write(map[string]string{"text": "a < b"}))
	require.NoError(t, j.Write([]int{1, 2}))
	require.NoError(t, j.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "{\"text\":\"a < b\"}\n[1,2]\n", string(text))
}

func TestJSONToStandardOutput(t *testing.T) {
	var out bytes.Buffer
	j, err := telemetry.OpenJSON("-", &out)
	require.NoError(t, err)
	require.NoError(t, j.Write(1))
	require.NoError(t, j.Close())
	require.Equal(t, "1\n", out.String())
}

func TestNoJSONAsked(t *testing.T) {
	j, err := telemetry.OpenJSON("", nil)
	require.NoError(t, err)
	require.NoError(t, j.Write(1))
	require.NoError(t, j.Close())
}

func TestJSONErrors(t *testing.T) {
	_, err := telemetry.OpenJSON(filepath.Join(t.TempDir(), "no", "such", "folder.json"), nil)
	require.ErrorContains(t, err, "expected a file in a folder that exists")

	j, err := telemetry.OpenJSON("-", &broken{})
	require.NoError(t, err)
	require.ErrorContains(t, j.Write(1), "disk full")
	var unsupported *json.UnsupportedTypeError
	require.ErrorAs(t, j.Write(make(chan int)), &unsupported)
}
