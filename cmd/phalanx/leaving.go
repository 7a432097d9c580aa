package main

import "sync"

// leaving is what is to be done when the program ends before its verb has: after a second interrupt, or when the end takes too
// long.
type leaving struct {
	mu   sync.Mutex
	next int
	all  map[int]func()
}

// add notes something; the returned function says that it is not to be done any more.
func (l *leaving) add(f func()) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[int]func(){}
	}
	n := l.next
	l.next++
	l.all[n] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, n)
	}
}

// leave does it.
func (l *leaving) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.all {
		f()
	}
}
