// Package messages holds what crosses a link or is reported by a rank: the binary header, names, typed events
// and their one-line printers.
package messages

import (
	"github.com/cespare/xxhash/v2"

	"phalanx/tensor"
)

// Kind is what a message is.
type Kind uint8

// The kinds of message. Values are part of the wire: append only.
const (
	Data    Kind = iota + 1 // a piece of a tensor
	Credit                  // the receiver took pieces: the sender may send that many more
	Hello                   // a rank is there
	Bye                     // a rank leaves
	Reset                   // the receiver of an edge wants it to begin anew
	Control                 // bytes of the layer above, beside the tensors
)

// NoLayer is Header.Layer of what belongs to no layer.
const NoLayer = 0xffff

// Header is the fixed little-endian envelope in front of every payload. The name of a message is
// (Run, Src, Dst, Chan, Step, Microbatch, Op, Layer, Phase, Chunk); Seq is dense per channel and follows from the name.
// Edge is no part of the name: a link counts with it the pieces it lets out from Src to Dst, so that a missing one is
// seen on the next.
type Header struct {
	Kind        Kind
	Run         uint64 // hash of the run id
	Topology    uint32 // topology generation
	Build       uint64 // hash of source version, GOARCH, GOAMD64 and normalised configuration
	Src, Dst    uint16 // ranks
	Incarnation uint32 // of the sender
	Chan        uint16 // axis<<8 | program
	Step        uint32
	Microbatch  uint16
	Op          uint16 // kind<<12 | reduce<<10 | tag
	Layer       uint16 // NoLayer outside layers
	Phase       uint16 // round<<14 | depth<<4 | phase
	Chunk       uint16 // piece of the payload
	Chunks      uint16
	Seq         uint64
	Edge        uint64 // dense count of pieces from Src to Dst, set by the link
	Log         uint64 // dense count of messages from Src to Dst on Chan, set by package recovery; 0 without recovery
	DType       tensor.DType
	NDim        uint8
	Shape       [4]uint32 // Shape[0]: elements of the whole operation
	Len         uint32    // bytes of payload behind this header
	PayloadCRC  uint32    // CRC-32C
}

// RunHash is Header.Run of a run id.
func RunHash(run string) uint64 { return xxhash.Sum64String(run) }
