// Package messages holds what crosses a link or is reported by a rank: the binary header, names, typed events
// and their one-line printers.
package messages

import "phalanx/tensor"

// Kind is what a message is.
type Kind uint8

// The kinds of message. Values are part of the wire: append only.
const (
	Data   Kind = iota + 1 // a piece of a tensor
	Credit                 // the receiver took pieces: the sender may send that many more
	Hello                  // a rank is there
	Bye                    // a rank leaves
)

// Header is the fixed little-endian envelope in front of every payload (PROTOCOL §1.1). The name of a message is
// (Run, Src, Dst, Chan, Step, Microbatch, Op, Layer, Phase, Chunk); Seq is dense per channel and follows from the name.
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
	Layer       uint16 // 0xffff outside layers
	Phase       uint16 // round<<14 | depth<<4 | phase
	Chunk       uint16 // piece of the payload
	Chunks      uint16
	Seq         uint64
	DType       tensor.DType
	NDim        uint8
	Shape       [4]uint32 // Shape[0]: elements of the whole operation
	Len         uint32    // bytes of payload behind this header
	PayloadCRC  uint32    // CRC-32C
}
