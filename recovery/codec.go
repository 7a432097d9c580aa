package recovery

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"phalanx/messages"
)

// Limits of a control message on the wire. Beyond them a body is not one of ours.
const (
	ControlBytesMax   = 64 << 10
	controlNumbersMax = 4096 // channels of a peer: axes times programs are below 2048
	// StepsMax is how many durable steps a rank tells: its newest. Ranks are a few steps apart, so a step that another
	// will have is among them, however long nothing has been committed.
	StepsMax = 1024
)

// wireControl is Control as it travels: CBOR with numbers for names, in RFC 8949's core deterministic form.
type wireControl struct {
	Kind        Kind              `cbor:"1,keyasint"`
	Src         uint16            `cbor:"2,keyasint"`
	Dst         uint16            `cbor:"3,keyasint"`
	Incarnation uint32            `cbor:"4,keyasint"`
	Generation  uint32            `cbor:"5,keyasint"`
	Numbers     map[uint16]uint64 `cbor:"6,keyasint,omitempty"`
	Steps       []uint32          `cbor:"7,keyasint,omitempty"`
	Ended       bool              `cbor:"8,keyasint,omitempty"`
	Every       uint32            `cbor:"9,keyasint,omitempty"`
	Of          uint32            `cbor:"10,keyasint,omitempty"`
}

// ControlError says that bytes are no control message.
type ControlError struct{ Why string }

func (e *ControlError) Error() string {
	return "found a control message that cannot be read: " + e.Why + "; expected one of the same build"
}

var (
	decodeMode = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 4, MaxMapPairs: controlNumbersMax, MaxArrayElements: StepsMax}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic("recovery: " + err.Error())
	}
	return mode
}

// EncodeControl is the body of a control message, at most ControlBytesMax for one that a Rank has made. Equal messages
// have equal bytes.
func EncodeControl(c Control) []byte {
	return messages.CBOR(wireControl{c.Kind, uint16(c.Src), uint16(c.Dst), c.Incarnation, c.Generation, c.Numbers, c.Steps, c.Ended, c.Every, c.Of})
}

// DecodeControl is the inverse. It takes nothing but what EncodeControl gives; the error is a *ControlError.
func DecodeControl(b []byte) (Control, error) {
	if len(b) > ControlBytesMax {
		return Control{}, &ControlError{fmt.Sprintf("it has %d bytes, at most %d are legal", len(b), ControlBytesMax)}
	}
	var w wireControl
	if err := decodeMode.Unmarshal(b, &w); err != nil {
		return Control{}, &ControlError{err.Error()}
	}
	if w.Kind == 0 || w.Kind >= kindEnd {
		return Control{}, &ControlError{fmt.Sprintf("its kind is %d", w.Kind)}
	}
	c := Control{w.Kind, int(w.Src), int(w.Dst), w.Incarnation, w.Numbers, w.Steps, w.Generation, w.Ended, w.Every, w.Of}
	if !bytes.Equal(EncodeControl(c), b) {
		return Control{}, &ControlError{"it is not in deterministic form"}
	}
	return c, nil
}
