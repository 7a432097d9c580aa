package messages

import (
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// deterministic is RFC 8949's core deterministic form: maps in the order of their keys, numbers in their shortest form.
var deterministic = func() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic("messages: " + err.Error())
	}
	return m
}()

// CBOR is a value as CBOR. Equal values have equal bytes, in every process and every life. A type that CBOR cannot write is
// a programmer error. What reads it sets limits of its own.
func CBOR(v any) []byte {
	b, err := deterministic.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("messages: %T as CBOR: %v", v, err))
	}
	return b
}
