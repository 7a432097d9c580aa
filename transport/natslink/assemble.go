package natslink

import (
	"fmt"
	"sync"
	"unsafe"

	"phalanx/messages"
	"phalanx/transport"
)

// place puts a checked piece into the message of its channel, nil before the first piece, and returns that message. A
// message of one piece keeps NATS's own buffer, all others are copied once, into a buffer of the pool.
func place(part *partial, h *messages.Header, payload []byte, p *pool) (*partial, error) {
	whole := *h
	whole.Chunk, whole.Chunks, whole.Edge, whole.PayloadCRC, whole.Len = 0, 1, 0, 0, 0
	if part == nil {
		part = &partial{header: whole, piece: len(payload)}
	}
	if err := fits(part, h, &whole); err != nil {
		return nil, err
	}
	switch {
	case h.Chunks == 1 && aligned(payload):
		part.buf = payload
	case part.buf == nil:
		part.buf, part.pooled = p.get(int(h.Chunks)*part.piece), true
	}
	if part.pooled {
		copy(part.buf[int(h.Chunk)*part.piece:], payload)
	}
	part.crc = messages.ChecksumJoin(part.crc, h.PayloadCRC, len(payload))
	part.chunk++
	if part.chunk == h.Chunks {
		part.buf = part.buf[:int(h.Chunk)*part.piece+len(payload)]
		part.header.Len, part.header.Edge, part.header.PayloadCRC = uint32(len(part.buf)), h.Edge, part.crc
	}
	return part, nil
}

// fits says whether a piece is the next one of the message: its number, its name and its size.
func fits(part *partial, h, whole *messages.Header) error {
	fail := func(found, want string) error {
		return &transport.LinkError{Kind: transport.ErrDisorder, Src: int(h.Src), Dst: int(h.Dst), Chan: int(h.Chan), Found: found, Expected: want}
	}
	last := h.Chunk+1 == h.Chunks
	switch {
	case *whole != part.header:
		return fail("a piece of "+whole.String(), "the rest of "+part.header.String())
	case h.Chunks == 0 || h.Chunk != part.chunk:
		return fail(fmt.Sprintf("chunk %d of %d", h.Chunk, h.Chunks), fmt.Sprintf("chunk %d", part.chunk))
	case h.Chunks > 1 && !last && int(h.Len) != part.piece,
		h.Chunks > 1 && last && (h.Len == 0 || int(h.Len) > part.piece):
		return fail(fmt.Sprintf("chunk %d of %d with %d bytes", h.Chunk, h.Chunks, h.Len), fmt.Sprintf("%d bytes", part.piece))
	}
	return nil
}

// aligned says whether every element type may be seen in the bytes.
func aligned(b []byte) bool {
	return len(b) == 0 || uintptr(unsafe.Pointer(&b[0]))%8 == 0
}

// pool keeps the buffers of consumed messages. A training step sends the same sizes again and again.
type pool struct {
	mu       sync.Mutex
	free     [][]byte // oldest first
	bytes    int
	bytesMax int
}

// get is n bytes with undefined contents. A free buffer may be used when it is at most twice as large.
func (p *pool) get(n int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, b := range p.free {
		if c := cap(b); c >= n && c <= 2*n && (best < 0 || c < cap(p.free[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, n)
	}
	b := p.free[best]
	p.drop(best)
	return b[:n]
}

// put takes a buffer back and forgets the oldest ones beyond the limit.
func (p *pool) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
	p.bytes += cap(b)
	for p.bytes > p.bytesMax {
		p.drop(0)
	}
}

func (p *pool) drop(i int) {
	p.bytes -= cap(p.free[i])
	copy(p.free[i:], p.free[i+1:])
	p.free[len(p.free)-1] = nil
	p.free = p.free[:len(p.free)-1]
}
