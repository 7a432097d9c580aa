package collective

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/tensor"
)

// The layout of a name in a header: op = kind<<12 | reduce<<10 | tag, phase = round<<14 | depth<<4 |
// phase, layer 0xffff outside layers.
const (
	kindShift   = 12
	reduceShift = 10
	tagMax      = 1<<reduceShift - 1
	roundShift  = 14
	depthShift  = 4
	depthMax    = 1<<(roundShift-depthShift) - 1
	phaseMax    = 1<<depthShift - 1
)

// OpName is the name of an operation: what all of its messages say about it, and what two members must agree on.
type OpName struct {
	Axis     mesh.Axis
	Kind     nn.OpKind
	Reduce   nn.ReduceKind
	Tag      nn.Tag
	DType    tensor.DType
	Elements int // of the whole value: AllGather's output, the input of the reductions, the message of Put and Get, 0 of Exchange
	Site     nn.Site
}

// NameOf is the name of an operation that CheckOp accepts.
func NameOf(op *nn.Op) OpName {
	whole := len(op.In)
	switch op.Kind {
	case nn.AllGather, nn.Get:
		whole = len(op.Out)
	case nn.Exchange:
		whole = 0 // every pair of members has sizes of its own
	}
	return OpName{Axis: op.Axis, Kind: op.Kind, Reduce: op.Reduce, Tag: op.Tag, DType: op.DType,
		Elements: whole / op.DType.Size(), Site: op.Site}
}

// NameIn reads the name out of a header.
func NameIn(h messages.Header) OpName {
	n := OpName{
		Axis: mesh.Axis(h.Chan >> 8), Kind: nn.OpKind(h.Op >> kindShift), Reduce: nn.ReduceKind(h.Op >> reduceShift & 3),
		Tag: nn.Tag(h.Op & tagMax), DType: h.DType, Elements: int(h.Shape[0]),
		Site: nn.Site{Step: int(h.Step), Microbatch: int(h.Microbatch), Phase: nn.Phase(h.Phase & phaseMax),
			Depth: int(h.Phase >> depthShift & depthMax), Layer: int(h.Layer)},
	}
	if h.Layer == messages.NoLayer {
		n.Site.Layer = -1
	}
	return n
}

// header is the envelope of one message of the operation.
func (n OpName) header(p nn.Program, round int) messages.Header {
	layer := uint16(messages.NoLayer)
	if n.Site.Layer >= 0 {
		layer = uint16(n.Site.Layer)
	}
	return messages.Header{
		Kind: messages.Data, Chan: Channel(n.Axis, p), Chunks: 1, DType: n.DType, NDim: 1,
		Step: uint32(n.Site.Step), Microbatch: uint16(n.Site.Microbatch), Layer: layer,
		Op:    uint16(n.Kind)<<kindShift | uint16(n.Reduce)<<reduceShift | uint16(n.Tag),
		Phase: uint16(round)<<roundShift | uint16(n.Site.Depth)<<depthShift | uint16(n.Site.Phase),
		Shape: [4]uint32{uint32(n.Elements)},
	}
}

// roundIn is the round a message belongs to.
func roundIn(h messages.Header) int { return int(h.Phase >> roundShift) }

// Channel is the number of the channel of one program on one axis. Each has its own order, so programs of one rank
// never wait for each other's messages.
func Channel(a mesh.Axis, p nn.Program) uint16 { return uint16(a)<<8 | uint16(p) }

// Short reads "tp all_reduce row_output".
func (n OpName) Short() string { return fmt.Sprintf("%s %s %s", n.Axis, n.Kind, n.Tag) }

// String reads as nn.Op does: "tp all_reduce sum row_output F32[1024] at step …".
func (n OpName) String() string {
	reduce := fmt.Sprintf("reduce(%d)", uint8(n.Reduce))
	if n.Reduce <= nn.Max {
		reduce = n.Reduce.String()
	}
	return fmt.Sprintf("%s %s %s %s %s[%d] at %s", n.Axis, n.Kind, reduce, n.Tag, n.DType, n.Elements, n.Site)
}
