package natslink

import (
	"context"
	"fmt"
	"testing"

	"phalanx/messages"
	"phalanx/transport"
)

// BenchmarkOneWay sends messages from one rank to another as fast as the windows allow; the receiver gives every
// message back at once.
func BenchmarkOneWay(b *testing.B) {
	for _, size := range []int{0, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			n, err := Start(context.Background(), Options{Embedded: true, Run: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			defer n.Close()
			got := make(chan struct{}, 1<<16)
			var in transport.Link
			h := transport.Handler{Fail: func(err error) { b.Error(err) }}
			h.Receive = func(m transport.Message) { in.Consumed(m); got <- struct{}{} }
			if in, err = n.Open(1, h); err != nil {
				b.Fatal(err)
			}
			out, err := n.Open(0, h)
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			ahead := max(2, min(64, (32<<20)/max(1, size)))
			for i := range b.N + ahead {
				if i < b.N {
					if err := out.Send(transport.Message{Header: messages.Header{Dst: 1}, Payload: payload}); err != nil {
						b.Fatal(err)
					}
				}
				if i >= ahead {
					<-got
				}
			}
		})
	}
}

// BenchmarkPingPong is the latency of a small message there and back.
func BenchmarkPingPong(b *testing.B) {
	n, err := Start(context.Background(), Options{Embedded: true, Run: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	got := make(chan struct{}, 1)
	var l [2]transport.Link
	fail := func(err error) { b.Error(err) }
	l[0], _ = n.Open(0, transport.Handler{Fail: fail, Receive: func(m transport.Message) { l[0].Consumed(m); got <- struct{}{} }})
	l[1], _ = n.Open(1, transport.Handler{Fail: fail, Receive: func(m transport.Message) {
		l[1].Consumed(m)
		_ = l[1].Send(transport.Message{Payload: []byte{1}})
	}})
	b.ResetTimer()
	for range b.N {
		_ = l[0].Send(transport.Message{Header: messages.Header{Dst: 1}, Payload: []byte{1}})
		<-got
	}
}
