package natslink

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"phalanx/messages"
	"phalanx/transport"
)

func startBench(b *testing.B, o Options) *Network {
	n, err := Start(context.Background(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.Close() })
	return n
}

// counted opens a rank that gives every message back at once and counts it.
func counted(b *testing.B, n *Network, rank int) (transport.Link, chan struct{}) {
	got := make(chan struct{}, 1<<16)
	var l transport.Link
	l, err := n.Open(rank, transport.Handler{
		Fail:    func(err error) { b.Error(err) },
		Receive: func(m transport.Message) { l.Consumed(m); got <- struct{}{} },
	})
	if err != nil {
		b.Fatal(err)
	}
	return l, got
}

// oneWay sends messages from one rank to another, at most 32 MiB ahead of the receiver.
func oneWay(b *testing.B, from, to *Network, size int) {
	_, got := counted(b, to, 1)
	out, _ := counted(b, from, 0)
	payload := make([]byte, size)
	ahead := max(2, min(64, (32<<20)/max(1, size)))
	b.SetBytes(int64(size))
	b.ResetTimer()
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
}

func BenchmarkOneWay(b *testing.B) {
	for _, size := range []int{0, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			n := startBench(b, Options{Embedded: true, Run: "bench"})
			oneWay(b, n, n, size)
		})
	}
	b.Run("1024KiB-tcp", func(b *testing.B) {
		n := startBench(b, Options{Embedded: true, URL: "nats://127.0.0.1:0", Ranks: 2, Run: "bench"})
		far := startBench(b, Options{URL: n.URL(), Ranks: 2, Run: "bench"})
		oneWay(b, far, far, 1<<20)
	})
}

// BenchmarkExchange is the traffic of a direct all-reduce of 16 MiB among 4 ranks: twice, each rank sends a quarter
// to each other.
func BenchmarkExchange(b *testing.B) {
	const ranks, piece = 4, 4 << 20
	n := startBench(b, Options{Embedded: true, Run: "bench"})
	var links [ranks]transport.Link
	var got [ranks]chan struct{}
	for r := range ranks {
		links[r], got[r] = counted(b, n, r)
	}
	payload := make([]byte, piece)
	b.ResetTimer()
	for range b.N {
		for range 2 {
			var wg sync.WaitGroup
			for r := range ranks {
				wg.Go(func() {
					for k := 1; k < ranks; k++ {
						_ = links[r].Send(transport.Message{Header: messages.Header{Dst: uint16((r + k) % ranks)}, Payload: payload})
					}
					for k := 1; k < ranks; k++ {
						<-got[r]
					}
				})
			}
			wg.Wait()
		}
	}
	b.ReportMetric(float64(2*ranks*(ranks-1)*piece)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

// BenchmarkPingPong is the way of a small message there and back.
func BenchmarkPingPong(b *testing.B) {
	n := startBench(b, Options{Embedded: true, Run: "bench"})
	back, err := n.Open(1, transport.Handler{Receive: func(transport.Message) {}, Fail: func(err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	l := back.(*link)
	l.h.Receive = func(m transport.Message) {
		l.Consumed(m)
		_ = l.Send(transport.Message{Payload: []byte{1}})
	}
	out, got := counted(b, n, 0)
	b.ResetTimer()
	for range b.N {
		_ = out.Send(transport.Message{Header: messages.Header{Dst: 1}, Payload: []byte{1}})
		<-got
	}
}
