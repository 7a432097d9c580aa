package natslink

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/messages"
	"phalanx/transport"
)

// traffic is some clients that send each other numbered messages on some channels, whatever happens to their links and
// servers. A client is what recovery makes of a rank: it can send again whatever it has sent, drops what it has, asks
// when Lost says so, and asks again for what does not come.
type traffic struct {
	clients  []*client
	channels int
	count    int // messages of one channel from one client to another
	size     func(src, dst, ch, i int) int
	step     func(i int) uint32
}

type client struct {
	of   *traffic
	me   int
	inc  uint32
	mu   sync.Mutex
	net  *Network
	link transport.Link
	need [][]int // by source and channel
	sent [][]int // by destination and channel: the first time
	old  [][]int // need, the last time it asked
	wait []int   // by source: looks until it asks again
	idle []int
	errs []error
	got  int
	more chan struct{} // something has come
}

// answersMax bounds the messages of a channel that answer a request.
const answersMax = 8

func newTraffic(clients, channels, count int, size func(src, dst, ch, i int) int) *traffic {
	w := &traffic{channels: channels, count: count, size: size, step: func(i int) uint32 { return uint32(i) }}
	table := func() [][]int {
		t := make([][]int, clients)
		for i := range t {
			t[i] = make([]int, channels)
		}
		return t
	}
	for i := range clients {
		w.clients = append(w.clients, &client{of: w, me: i, need: table(), sent: table(), old: table(),
			wait: make([]int, clients), idle: make([]int, clients), more: make(chan struct{}, 1)})
	}
	return w
}

// live opens the link of a client's next life on a network of its own. What it had of an earlier life ends first, unless
// it is to haunt.
func (c *client) live(t *testing.T, o Options, haunt bool) {
	if c.net != nil && !haunt {
		require.NoError(t, c.net.Close())
	}
	inc := c.inc + 1
	o.Ranks, o.Incarnation = len(c.of.clients), inc
	n := start(t, o)
	c.mu.Lock() // what comes now waits until the link is known
	link, err := n.Open(c.me, transport.Handler{
		Receive: func(m transport.Message) { c.receive(m, inc) },
		Fail:    func(err error) { c.mu.Lock(); defer c.mu.Unlock(); c.errs = append(c.errs, err) },
		Lost:    func(peer int) { c.ask(peer, inc) },
		Control: func(src int, body []byte) { c.answer(src, body, inc) },
	})
	c.net, c.link, c.inc = n, link, inc
	c.mu.Unlock()
	require.NoError(t, err)
	for p := range c.of.clients {
		c.ask(p, inc)
	}
}

// receive takes what comes next; of another life than the present, nothing.
func (c *client) receive(m transport.Message, inc uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	src, ch, i := int(m.Header.Src), int(m.Header.Chan), int(m.Header.Log)
	if inc == c.inc && i == c.need[src][ch] {
		if string(m.Payload) != string(c.of.payload(src, c.me, ch, i)) {
			c.errs = append(c.errs, fmt.Errorf("message %d of channel %d from %d has other bytes", i, ch, src))
		}
		c.need[src][ch]++
		c.got++
		signal(c.more)
	}
	if inc == c.inc {
		c.link.Consumed(m)
	}
}

// payload is what a message must hold, from its name alone.
func (w *traffic) payload(src, dst, ch, i int) []byte {
	return noise[(src*7919+dst*104729+ch*31+i*977)%(1<<20):][:w.size(src, dst, ch, i)]
}

func (c *client) send(dst, ch, i int) {
	h := messages.Header{Dst: uint16(dst), Chan: uint16(ch), Log: uint64(i), Step: c.of.step(i)}
	if err := c.link.Send(transport.Message{Header: h, Payload: c.of.payload(c.me, dst, ch, i)}); err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *client) ask(peer int, inc uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if inc != c.inc {
		return
	}
	b, _ := json.Marshal(c.need[peer])
	if err := c.link.(transport.Controller).Control(peer, b); err != nil {
		c.errs = append(c.errs, err)
	}
}

// answer sends again what a peer lacks.
func (c *client) answer(src int, body []byte, inc uint32) {
	var need []int
	err := json.Unmarshal(body, &need)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || len(need) != c.of.channels {
		c.errs = append(c.errs, fmt.Errorf("control body %q from %d: %v", body, src, err))
		return
	}
	if inc != c.inc {
		return
	}
	for ch, from := range need {
		for i := from; i < min(c.sent[src][ch], from+answersMax); i++ {
			c.send(src, ch, i)
		}
	}
}

// work sends the next message everywhere, as long as the others are not far behind, and asks where nothing moves.
func (c *client) work() (done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done = true
	for p := range c.of.clients {
		moved, lacks := false, false
		for ch := range c.of.channels {
			if n := c.sent[p][ch]; n < c.of.count && n < c.need[p][ch]+answersMax {
				c.sent[p][ch]++
				c.send(p, ch, n)
			}
			moved = moved || c.need[p][ch] != c.old[p][ch]
			lacks = lacks || c.need[p][ch] < c.of.count
			done = done && c.sent[p][ch] == c.of.count
		}
		copy(c.old[p], c.need[p])
		c.idle[p]++
		if moved || !lacks {
			c.idle[p], c.wait[p] = 0, 4
		}
		if c.idle[p] > c.wait[p] {
			c.idle[p], c.wait[p] = 0, min(2*c.wait[p]+1, 64)
			b, _ := json.Marshal(c.need[p])
			_ = c.link.(transport.Controller).Control(p, b)
		}
		done = done && !lacks
	}
	return done
}

// run lets all clients work until each has everything, and calls on with the share of it that is there.
func (w *traffic) run(t *testing.T, on func(done float64)) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	all := len(w.clients) * len(w.clients) * w.channels * w.count
	for {
		done, got := true, 0
		for _, c := range w.clients {
			done = c.work() && done
			c.mu.Lock()
			got += c.got
			require.Empty(t, c.errs, "client %d", c.me)
			c.mu.Unlock()
		}
		if done {
			return
		}
		on(float64(got) / float64(all))
		select {
		case <-w.clients[0].more:
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d of %d messages after %v: %+v", got, all, patience, w.needs())
		}
	}
}

func (w *traffic) needs() (out [][][]int) {
	for _, c := range w.clients {
		c.mu.Lock()
		out = append(out, c.need)
		c.mu.Unlock()
	}
	return out
}

// stats adds up what all links have counted.
func (w *traffic) stats() (sum Stats) {
	for _, c := range w.clients {
		s := c.net.Stats()
		sum.Lost += s.Lost
		sum.Fenced += s.Fenced
		sum.Corrupt += s.Corrupt
		sum.Reconnects += s.Reconnects
		sum.Messages += s.Messages
	}
	return sum
}
