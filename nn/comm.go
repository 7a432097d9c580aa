// Package nn holds the layers every model is made of and the doors through which they reach other ranks.
package nn

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/tensor"
)

// OpKind is what a collective does.
type OpKind uint8

// The collectives, which every member of the group calls in the same order, and the two halves of a message from one
// member to another, which only those two call.
const (
	AllReduce     OpKind = iota + 1 // Out[i] = reduce over members of In[i], on every member
	ReduceScatter                   // In is Size pieces; Out is the reduced piece of this member
	AllGather                       // Out is the pieces of all members in rank order
	Exchange                        // In is parts for some members, Out is parts of some members: see Op.To and Op.From
	Put                             // In goes to one member, Op.To, under its name; nobody is waited for
	Get                             // Out is what one member, Op.From, put under this name
)

// String is the name errors and message counts use.
func (k OpKind) String() string {
	switch k {
	case AllReduce:
		return "all_reduce"
	case ReduceScatter:
		return "reduce_scatter"
	case AllGather:
		return "all_gather"
	case Exchange:
		return "exchange"
	case Put:
		return "put"
	case Get:
		return "get"
	}
	return fmt.Sprintf("op(%d)", uint8(k))
}

// ReduceKind is how values are combined. Members are combined in ascending rank order, always.
type ReduceKind uint8

// The reductions.
const (
	Sum ReduceKind = iota
	Max
)

// String is the reduction's name.
func (r ReduceKind) String() string { return [...]string{"sum", "max"}[r] }

// Phase is where in a step a program stands.
type Phase uint8

// The phases of a step.
const (
	Forward Phase = iota + 1
	Backward
	Eval
	Update // counts, gradient reduction, norm, optimizer
)

// String is the phase's name.
func (p Phase) String() string {
	switch p {
	case Forward:
		return "forward"
	case Backward:
		return "backward"
	case Eval:
		return "eval"
	case Update:
		return "update"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// Tag says what a collective is for. Its name is in every message, error and count.
type Tag uint16

// The tags. Values are part of the wire header: append only.
const (
	TagEmbedding Tag = iota + 1
	TagColumnInput
	TagRowOutput
	TagHeadInput
	TagVocabMax
	TagVocabSum
	TagRouterCounts
	TagMaskGather
	TagEHProjInput
	TagEHProjOutput
	TagScatter
	TagGradient
	TagGradNorm
	TagTokenCounts
	TagFlags
	TagRollIDs
	TagRollPositions
	TagRollLabels
	TagRollLossMask
	TagRollPaddingMask
	TagRollEmbeddings
	TagRingKV
	TagRingKVGrad
	TagGatherKV
	TagHeads
	TagRouterCapacity
	TagDispatchCounts
	TagDispatch
	TagCombine
	TagActivation
	TagActivationGrad
	TagDepthLabels
	TagDepthSet
	TagEmbeddingUse
	TagParamGather
	TagGradientView
	TagPositionUse
	TagCredit
	tagEnd
)

var tagNames = [tagEnd]string{
	TagEmbedding: "embedding", TagColumnInput: "column_input", TagRowOutput: "row_output", TagHeadInput: "head_input",
	TagVocabMax: "vocab_max", TagVocabSum: "vocab_sum", TagRouterCounts: "router_counts", TagMaskGather: "mask_allgather",
	TagEHProjInput: "eh_proj_input", TagEHProjOutput: "eh_proj_output", TagScatter: "sequence_scatter",
	TagGradient: "gradient", TagGradNorm: "grad_norm", TagTokenCounts: "token_counts", TagFlags: "flags",
	TagRollIDs: "roll.input_ids", TagRollPositions: "roll.position_ids", TagRollLabels: "roll.labels",
	TagRollLossMask: "roll.loss_mask", TagRollPaddingMask: "roll.padding_mask", TagRollEmbeddings: "roll.decoder_input",
	TagRingKV: "ring_kv", TagRingKVGrad: "ring_kv_grad", TagGatherKV: "gather_kv", TagHeads: "heads",
	TagRouterCapacity: "router_capacity", TagDispatchCounts: "dispatch_counts", TagDispatch: "dispatch", TagCombine: "combine",
	TagActivation: "activation", TagActivationGrad: "activation_grad", TagDepthLabels: "depth_labels", TagDepthSet: "depth_set", TagEmbeddingUse: "embedding_use", TagCredit: "credit",
	TagParamGather: "param_gather", TagGradientView: "gradient_view",
	TagPositionUse: "position_use",
}

// String is the tag's name.
func (t Tag) String() string {
	if t > 0 && t < tagEnd {
		return tagNames[t]
	}
	return fmt.Sprintf("tag(%d)", uint16(t))
}

// Site is the place in the program at which a collective stands. It names the messages of the collective.
type Site struct {
	Step       int // 0-based
	Microbatch int // index on this data-parallel rank; 0 in Update
	Phase      Phase
	Depth      int // 0: the trunk and the heads; k: MTP depth k
	// Layer is the decoder layer, or the inner layer of a depth; -1 outside layers. Messages between pipeline stages
	// have the virtual chunk here that they are for.
	Layer int
}

// String reads "step 3 microbatch 0 mtp.2 forward layer 1".
func (s Site) String() string {
	where := ""
	if s.Depth > 0 {
		where = fmt.Sprintf("mtp.%d ", s.Depth)
	}
	layer := ""
	if s.Layer >= 0 {
		layer = fmt.Sprintf(" layer %d", s.Layer)
	}
	return fmt.Sprintf("step %d microbatch %d %s%s%s", s.Step, s.Microbatch, where, s.Phase, layer)
}

// Op is one collective. The asking program owns In and Out again when Do returns; In is never changed.
type Op struct {
	Axis   mesh.Axis
	Kind   OpKind
	Reduce ReduceKind
	DType  tensor.DType
	Tag    Tag
	Site   Site
	In     []byte // AllGather: this member's piece; else the whole value
	Out    []byte // ReduceScatter: one piece; else the whole value. May be In for AllReduce.
	// Exchange: the parts of In in order, and the parts of Out in order. Both sides of a part name it; at most one part
	// goes from a member to another. Every member of the group joins the operation, with no part too.
	// Put: To is one part, In whole. Get: From is one part, Out whole.
	To, From []Part
	// Cuts, of a ReduceScatter or an AllGather, are the bytes at which the pieces of the whole value begin, and its end; the
	// same at every member. nil: equal pieces.
	Cuts []int
}

// Part is a part of an Exchange.
type Part struct{ Member, Bytes int }

// String reads "tp all_reduce sum row_output f32[1024] at step …".
func (o *Op) String() string {
	return fmt.Sprintf("%s %s %s %s %s[%d] at %s", o.Axis, o.Kind, o.Reduce, o.Tag, o.DType, len(o.In)/max(o.DType.Size(), 1), o.Site)
}

// Program names one straight-line program of a rank: 0 is the stage (trunk, heads, optimizer), k is MTP depth k; Reducer
// is the last.
type Program uint8

// Reducer is the program that adds gradients over ranks while the stage goes on (overlap_grad_reduce).
const Reducer Program = 255

// Comm is how straight-line code reaches other ranks and the other programs of its own rank.
// Do and Recv suspend the program; they return when the operation is complete, and never return on a stopped rank.
type Comm interface {
	Size(a mesh.Axis) int                // number of members of this rank's group on a
	Rank(a mesh.Axis) int                // this rank's place in it
	Do(op *Op)                           // one collective
	Send(to Program, name string, v any) // hand a value to a program of this rank; v changes owner
	Recv(from Program, name string) any  // the next value of that name from that program
}
