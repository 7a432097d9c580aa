package plane

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"phalanx/messages"
)

// Limits of a body. Beyond them it is not one of ours.
const (
	bodyBytesMax = 256 << 10
	bodyItemsMax = 1 << 14
)

var (
	decodeMode = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 8, MaxMapPairs: bodyItemsMax, MaxArrayElements: bodyItemsMax}.DecMode())
)

func must[T any](mode T, err error) T {
	if err != nil {
		panic("plane: " + err.Error())
	}
	return mode
}

// encode is a body; equal values have equal bytes.
func encode(v any) []byte { return messages.CBOR(v) }

// decode reads a body and nothing else.
func decode(what string, b []byte, v any) error {
	if len(b) > bodyBytesMax {
		return fmt.Errorf("plane: found %s of %d bytes, expected at most %d", what, len(b), bodyBytesMax)
	}
	if err := decodeMode.Unmarshal(b, v); err != nil {
		return fmt.Errorf("plane: found %s that cannot be read: %w; expected one of the same build", what, err)
	}
	return nil
}
