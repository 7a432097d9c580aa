package telemetry

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// redraw is the shortest time between two drawings of the progress line: ten a second look smooth and cost nothing.
const redraw = 100 * time.Millisecond

// clearLine returns to the first column and erases the line.
const clearLine = "\r\x1b[K"

// Progress keeps one line at the bottom of a terminal: step, share, speed and time left. It is also the writer for
// whatever else goes to that terminal, so that a log line never lands in the middle of it. A nil Progress does nothing.
type Progress struct {
	mu      sync.Mutex
	out     io.Writer
	now     func() time.Time
	line    string // as it should stand; "": none yet
	visible bool
	drawn   time.Time
	steps   int
	spentMs float64
}

// NewProgress is a progress line on out, which must be a terminal.
func NewProgress(out io.Writer, now func() time.Time) *Progress {
	return &Progress{out: out, now: now}
}

// Step takes a finished step.
func (p *Progress) Step(it Iteration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps++
	p.spentMs += it.ElapsedMs
	p.line = progressLine(it, p.spentMs/float64(p.steps))
	if at := p.now(); at.Sub(p.drawn) >= redraw || !p.visible {
		p.drawn = at
		p.draw()
	}
}

// progressLine reads " 12/40   30 %   812.4 ms/step   1234 tokens/s   0:00:23 left".
func progressLine(it Iteration, stepMs float64) string {
	left := time.Duration(stepMs * float64(it.Steps-it.Step) * float64(time.Millisecond)).Round(time.Second)
	speed := 0.0
	if it.ElapsedMs > 0 {
		speed = float64(it.Tokens) / it.ElapsedMs * 1e3
	}
	return fmt.Sprintf(" %d/%d %3d %%   %.1f ms/step   %.0f tokens/s   %s left",
		it.Step, it.Steps, 100*it.Step/max(it.Steps, 1), stepMs, speed, clock(left))
}

// clock writes a duration as h:mm:ss.
func clock(d time.Duration) string {
	s := int64(d / time.Second)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

func (p *Progress) draw() {
	if p.line == "" {
		return
	}
	fmt.Fprint(p.out, clearLine, p.line)
	p.visible = true
}

func (p *Progress) hide() {
	if p.visible {
		fmt.Fprint(p.out, clearLine)
		p.visible = false
	}
}

// Hide takes the line away until the next step.
func (p *Progress) Hide() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
}

// Write writes whole lines above the progress line.
func (p *Progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.visible
	p.hide()
	n, err := p.out.Write(text)
	if was {
		p.draw()
	}
	return n, err
}

// Close takes the line away and forgets it; another run may follow.
func (p *Progress) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
	p.line, p.steps, p.spentMs = "", 0, 0
}
