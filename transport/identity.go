package transport

import (
	"fmt"

	"phalanx/messages"
)

// Identity is what all messages of one process have in common. Ranks with another run, topology or build must not
// exchange tensors: different float code cannot give the same bits.
type Identity struct {
	Run         uint64 // messages.RunHash of the run id
	Topology    uint32 // topology generation
	Build       uint64 // hash of source version, GOARCH, GOAMD64 and normalised configuration
	Incarnation uint32 // of the ranks of this process
}

// Stamp makes a header the one of a whole message of n bytes from src. Fields the caller left at zero are filled; a
// field of the identity that contradicts it is refused, since it would hide that two builds met.
func (id Identity) Stamp(h *messages.Header, src, n int) error {
	bad := func(what string, found, want uint64) error {
		return &LinkError{Kind: ErrForeign, Src: src, Dst: int(h.Dst), Chan: int(h.Chan),
			Found: fmt.Sprintf("%s %#x", what, found), Expected: fmt.Sprintf("%#x, the one of the link, or 0", want)}
	}
	switch {
	case h.Run != 0 && h.Run != id.Run:
		return bad("run", h.Run, id.Run)
	case h.Topology != 0 && h.Topology != id.Topology:
		return bad("topology", uint64(h.Topology), uint64(id.Topology))
	case h.Build != 0 && h.Build != id.Build:
		return bad("build", h.Build, id.Build)
	case h.Incarnation != 0 && h.Incarnation != id.Incarnation:
		return bad("incarnation", uint64(h.Incarnation), uint64(id.Incarnation))
	case h.Src != 0 && int(h.Src) != src:
		return bad("source", uint64(h.Src), uint64(src))
	}
	h.Run, h.Topology, h.Build, h.Incarnation = id.Run, id.Topology, id.Build, id.Incarnation
	h.Kind, h.Src, h.Chunk, h.Chunks, h.Len = messages.Data, uint16(src), 0, 1, uint32(n)
	h.Edge, h.PayloadCRC = 0, 0
	return nil
}

// Check compares the run, topology and build of a received header with this process's. The incarnation of a peer is
// its own.
func (id Identity) Check(h *messages.Header) error {
	bad := func(what string, found, want uint64) error {
		return &LinkError{Kind: ErrForeign, Src: int(h.Src), Dst: int(h.Dst), Chan: int(h.Chan),
			Found: fmt.Sprintf("%s %#x", what, found), Expected: fmt.Sprintf("%#x", want)}
	}
	switch {
	case h.Run != id.Run:
		return bad("run", h.Run, id.Run)
	case h.Topology != id.Topology:
		return bad("topology", uint64(h.Topology), uint64(id.Topology))
	case h.Build != id.Build:
		return bad("build", h.Build, id.Build)
	}
	return nil
}
