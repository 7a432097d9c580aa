package natslink

import (
	"slices"
	"sync"
	"time"

	"phalanx/messages"
	"phalanx/transport"
)

// harm puts Options.Wire between the link and its connections.
func (l *link) harm() {
	l.late = &lateFrames{}
	say := l.say
	l.say = func(dst int, frame []byte) (err error) {
		for _, f := range l.net.opts.Wire.Send(l.rank, dst, frame) {
			if !f.At.IsZero() {
				l.late.add(f, func(frame []byte) { _ = say(dst, frame) })
			} else if e := say(dst, f.Frame); e != nil {
				err = e
			}
		}
		return err
	}
}

// fly publishes what the wire leaves of a piece; false: the link has ended.
func (l *link) fly(h *messages.Header, subject string, frame []byte) bool {
	for _, f := range l.net.opts.Wire.Send(l.rank, int(h.Dst), frame) {
		if !f.At.IsZero() {
			l.late.add(f, func(frame []byte) { _ = l.data.Publish(subject, frame) })
		} else if !l.publish(subject, f.Frame) {
			return false
		}
	}
	return true
}

// lateFrames are frames that a wire holds back. Those that are due at one time go in the order in which they came.
type lateFrames struct {
	mu    sync.Mutex
	list  []lateFrame // by time
	timer *time.Timer
	ended bool
}

type lateFrame struct {
	at    time.Time
	frame []byte
	send  func(frame []byte)
}

func (q *lateFrames) add(f transport.Flight, send func([]byte)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	l := lateFrame{f.At, f.Frame, send}
	i, _ := slices.BinarySearchFunc(q.list, l, func(a, b lateFrame) int {
		if a.at.After(b.at) {
			return 1
		}
		return -1 // those of the same time are before it
	})
	q.list = slices.Insert(q.list, i, l)
	q.wind()
}

// wind sets the timer to the first frame. The caller has the lock.
func (q *lateFrames) wind() {
	if q.timer != nil {
		q.timer.Stop()
	}
	if len(q.list) > 0 {
		q.timer = time.AfterFunc(time.Until(q.list[0].at), q.fire)
	}
}

// fire sends what is due. It holds the lock, so that nothing overtakes and nothing is sent after end.
func (q *lateFrames) fire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	now := time.Now()
	for len(q.list) > 0 && !q.list[0].at.After(now) {
		l := q.list[0]
		q.list = q.list[1:]
		l.send(l.frame)
	}
	q.wind()
}

func (q *lateFrames) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended, q.list = true, nil
	q.wind()
}
