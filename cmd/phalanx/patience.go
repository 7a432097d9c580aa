package main

import "sync"

// patience is what an interrupt asks for while a run could still save its work.
type patience struct {
	mu    sync.Mutex
	stop  chan struct{} // of the run in progress; nil: there is none that saves
	asked bool
}

// begin is called by a run that saves when it is asked to stop. It saves until end is called.
func (p *patience) begin() (stop <-chan struct{}, end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = make(chan struct{})
	return p.stop, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stop = nil
	}
}

// ask asks the run in progress to stop; false if nobody listens, so that the verb is to be ended.
func (p *patience) ask() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop == nil || p.asked {
		return false
	}
	p.asked = true
	close(p.stop)
	return true
}

// spent says whether a run was asked to stop: no other is to begin.
func (p *patience) spent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}
