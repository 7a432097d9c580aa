package telemetry

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ConsoleOptions say where a Console writes and how often.
type ConsoleOptions struct {
	Out         io.Writer
	LogInterval int              // iterations per line; less than 1 counts as 1
	Now         func() time.Time // the clock of the timestamps
	Progress    *Progress        // nil: none
}

// Console prints iterations and validation passes as Megatron does, and events one a line. Ranks report from one
// goroutine and checkpoints from another, so its methods may be called at the same time.
type Console struct {
	mu     sync.Mutex
	opts   ConsoleOptions
	window window
	err    error
}

// NewConsole is a Console that has printed nothing.
func NewConsole(o ConsoleOptions) *Console {
	o.LogInterval = max(o.LogInterval, 1)
	return &Console{opts: o}
}

// Iteration takes a finished step; every LogInterval-th prints the line of the iterations since the last one.
// A step in which no label counted prints 0 where it has no loss, since parsers want a number, and an event line.
func (c *Console) Iteration(it Iteration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.NoTokens {
		it.Losses = withoutTokens(it.Losses)
	}
	c.window.add(it)
	if it.Step%c.opts.LogInterval == 0 {
		c.print(iterationLine(c.opts.Now(), &c.window))
		c.window = window{}
	}
	if it.NoTokens {
		c.print(fmt.Sprintf("no tokens step=%d: no label counted in the lm loss, printed as 0", it.Step))
	}
	c.opts.Progress.Step(it)
}

// withoutTokens is losses with 0 for the LM loss, which has no value.
func withoutTokens(losses []Value) []Value {
	out := make([]Value, len(losses))
	copy(out, losses)
	for i := range out {
		if out[i].Name == "lm loss" {
			out[i].Value = 0
		}
	}
	return out
}

// Validation prints a validation pass.
func (c *Console) Validation(v Validation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.Tokens == 0 {
		v.Losses = withoutTokens(v.Losses)
	}
	for _, line := range validationLines(v) {
		c.print(line)
	}
	if v.Tokens == 0 {
		c.print(fmt.Sprintf("no tokens validation step=%d: no label counted in the lm loss, printed as 0", v.Step))
	}
}

// Event prints e on one line.
func (c *Console) Event(e fmt.Stringer) { c.Text(oneLine(e.String())) }

// Text prints a block of text as it is.
func (c *Console) Text(block string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.print(strings.TrimRight(block, "\n"))
}

// Close takes the progress line away and returns the first error of writing.
func (c *Console) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.Progress.Close()
	return c.err
}

// print writes a line with the progress line out of its way. After an error nothing more is written.
func (c *Console) print(line string) {
	if c.err != nil {
		return
	}
	c.opts.Progress.Hide()
	_, c.err = io.WriteString(c.opts.Out, line+"\n")
}

var lineBreaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")

func oneLine(s string) string { return lineBreaks.Replace(strings.TrimRight(s, "\r\n")) }
