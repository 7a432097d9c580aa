package messages

import (
	"fmt"
	"strconv"
	"strings"
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Credit:
		return "credit"
	case Hello:
		return "hello"
	case Bye:
		return "bye"
	case Reset:
		return "reset"
	case Control:
		return "control"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Namer turns the numbers of a header into the words of the layer that chose them. A nil function prints the number.
type Namer struct {
	Chan, Op, Phase func(uint16) string
}

// String is Line without names.
func (h *Header) String() string { return h.Line(Namer{}) }

// Line prints the header in one line:
//
//	data 1→2 chan 0x0301 step 3 mb 0 op 0x1406 layer 2 phase 0x0001 seq 17 chunk 0/4 edge 66 F32[1024] 262144 B
func (h *Header) Line(n Namer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d→%d chan %s step %d mb %d op %s", h.Kind, h.Src, h.Dst, name(n.Chan, h.Chan), h.Step,
		h.Microbatch, name(n.Op, h.Op))
	if h.Layer != NoLayer {
		fmt.Fprintf(&b, " layer %d", h.Layer)
	}
	fmt.Fprintf(&b, " phase %s seq %d chunk %d/%d edge %d %s", name(n.Phase, h.Phase), h.Seq, h.Chunk, h.Chunks, h.Edge,
		h.shape())
	fmt.Fprintf(&b, " %d B", h.Len)
	return b.String()
}

// shape reads "F32[3,4]"; a header without dimensions shows the elements of the whole operation.
func (h *Header) shape() string {
	dims := make([]string, 0, len(h.Shape))
	for _, s := range h.Shape[:min(max(int(h.NDim), 1), len(h.Shape))] {
		dims = append(dims, strconv.FormatUint(uint64(s), 10))
	}
	return h.DType.String() + "[" + strings.Join(dims, ",") + "]"
}

func name(f func(uint16) string, v uint16) string {
	if f == nil {
		return fmt.Sprintf("0x%04x", v)
	}
	return f(v)
}
