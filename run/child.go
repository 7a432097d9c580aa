package run

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"phalanx/supervise"
	"phalanx/transport/natslink"
)

// child is a process that is started again whenever it ends, until the run does: a server, or a supervisor.
type child struct {
	l    *launch
	name string
	args []string

	mu      sync.Mutex
	process supervise.Process
	ended   bool
	gone    chan struct{}
	starts  int
}

// childPause is between two lives of a child: one that cannot start must not fill the log.
const childPause = 200 * time.Millisecond

// keep starts a child, again and again.
func (l *launch) keep(name string, args ...string) *child {
	c := &child{l: l, name: name, args: args, gone: make(chan struct{})}
	go c.run()
	return c
}

func (c *child) run() {
	defer close(c.gone)
	for {
		p, err := c.start()
		if p == nil && err == nil {
			return
		}
		if err != nil {
			c.l.log.Error("a process does not start", zap.String("name", c.name), zap.Error(err))
		} else {
			e := p.Wait()
			c.l.log.Info("a process has ended", zap.String("name", c.name), zap.Int("code", e.Code), zap.String("signal", e.Signal))
		}
		time.Sleep(childPause)
	}
}

// start starts the next life; nil: the run is over.
func (c *child) start() (supervise.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, nil
	}
	p, err := c.l.command(c.name, c.args...)
	c.process = p
	c.starts++
	return p, err
}

// kill ends the present life.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		_ = c.process.Kill() // it may have ended by itself
	}
}

// pause stops the present life for some time, as a machine does that swaps.
func (c *child) pause(d time.Duration) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p == nil || suspend(p.PID()) != nil {
		return
	}
	time.Sleep(d)
	_ = resume(p.PID()) // it may have been killed
}

// serverSilence is how long a NATS server may give no sign before it is taken for stuck, in looks of a second.
const serverSilence = 5

// mind kills a NATS server that stands still, so that another is started: a stopped process accepts connections and says nothing.
func (c *child) mind(ctx context.Context, url string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for silent, starts := 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n := c.lives(); n != starts {
			silent, starts = 0, n
		}
		if natslink.Speaks(ctx, url) {
			silent = 0
			continue
		}
		if silent++; silent == serverSilence {
			c.l.log.Warn("a NATS server stands still and is replaced", zap.String("name", c.name))
			c.kill()
			silent = 0
		}
	}
}

func (c *child) lives() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// end ends the child for good.
func (c *child) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.kill()
	<-c.gone
}
