package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"phalanx/tensor"
)

const (
	// HeaderSize is the bytes of an encoded header. It is a multiple of 32, so that a payload behind it in one
	// allocation stays aligned for every element type.
	HeaderSize = 128
	// Magic opens every header ("Px", little-endian).
	Magic = 0x7850
	// Version is the layout written below. A change of the layout changes it.
	Version = 2
)

// The ways in which bytes fail to be a message. Test with errors.Is; the error itself is a *CodecError.
var (
	ErrShort      = errors.New("too short")
	ErrMagic      = errors.New("no header of Phalanx")
	ErrVersion    = errors.New("another version of the header")
	ErrHeaderCRC  = errors.New("header checksum")
	ErrLength     = errors.New("length of the payload")
	ErrPayloadCRC = errors.New("payload checksum")
)

// CodecError says what was found where something else was expected.
type CodecError struct {
	Kind            error // one of the Err… values
	Found, Expected uint64
}

// Error reads "payload checksum: found 0x…, expected 0x…".
func (e *CodecError) Error() string {
	switch e.Kind {
	case ErrShort:
		return fmt.Sprintf("%v: found %d bytes, expected at least %d", e.Kind, e.Found, e.Expected)
	case ErrLength:
		return fmt.Sprintf("%v: found %d bytes, expected %d", e.Kind, e.Found, e.Expected)
	case ErrVersion:
		return fmt.Sprintf("%v: found %d, expected %d: run the same build everywhere", e.Kind, e.Found, e.Expected)
	}
	return fmt.Sprintf("%v: found %#x, expected %#x", e.Kind, e.Found, e.Expected)
}

// Unwrap makes errors.Is(err, ErrMagic) and the like work.
func (e *CodecError) Unwrap() error { return e.Kind }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C (Castagnoli) that guards headers and payloads.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// ChecksumMore is the Checksum of bytes followed by b, from that of the bytes alone; of no bytes it is 0.
func ChecksumMore(before uint32, b []byte) uint32 { return crc32.Update(before, castagnoli, b) }

// ChecksumJoin is the Checksum of bytes followed by n others, from that of each.
func ChecksumJoin(before, behind uint32, n int) uint32 { return shifted(before, n) ^ behind }

// Seal sets Len and PayloadCRC for a payload.
func (h *Header) Seal(payload []byte) {
	h.Len = uint32(len(payload))
	h.PayloadCRC = Checksum(payload)
}

// CheckPayload compares a payload with Len and PayloadCRC.
func (h *Header) CheckPayload(payload []byte) error {
	if uint64(len(payload)) != uint64(h.Len) {
		return &CodecError{ErrLength, uint64(len(payload)), uint64(h.Len)}
	}
	if crc := Checksum(payload); crc != h.PayloadCRC {
		return &CodecError{ErrPayloadCRC, uint64(crc), uint64(h.PayloadCRC)}
	}
	return nil
}

// Encode writes the header into the first HeaderSize bytes of dst, its own checksum last. The layout, in order:
//
//	magic u16, version u8, kind u8, run u64, topology u32, build u64, src u16, dst u16, incarnation u32, chan u16,
//	step u32, microbatch u16, op u16, layer u16, phase u16, chunk u16, chunks u16, seq u64, edge u64, dtype u8,
//	ndim u8, shape 4×u32, log u64, 24 bytes of zero, len u32, crc32c(payload) u32, crc32c(the 124 bytes before) u32
func (h *Header) Encode(dst []byte) {
	le, b := binary.LittleEndian, dst[:HeaderSize]
	le.PutUint16(b[0:], Magic)
	b[2], b[3] = Version, byte(h.Kind)
	le.PutUint64(b[4:], h.Run)
	le.PutUint32(b[12:], h.Topology)
	le.PutUint64(b[16:], h.Build)
	le.PutUint16(b[24:], h.Src)
	le.PutUint16(b[26:], h.Dst)
	le.PutUint32(b[28:], h.Incarnation)
	le.PutUint16(b[32:], h.Chan)
	le.PutUint32(b[34:], h.Step)
	le.PutUint16(b[38:], h.Microbatch)
	le.PutUint16(b[40:], h.Op)
	le.PutUint16(b[42:], h.Layer)
	le.PutUint16(b[44:], h.Phase)
	le.PutUint16(b[46:], h.Chunk)
	le.PutUint16(b[48:], h.Chunks)
	le.PutUint64(b[50:], h.Seq)
	le.PutUint64(b[58:], h.Edge)
	b[66], b[67] = byte(h.DType), h.NDim
	for i, s := range h.Shape {
		le.PutUint32(b[68+4*i:], s)
	}
	le.PutUint64(b[84:], h.Log)
	clear(b[92:116])
	le.PutUint32(b[116:], h.Len)
	le.PutUint32(b[120:], h.PayloadCRC)
	le.PutUint32(b[124:], Checksum(b[:124]))
}

// Decode reads and checks the header at the front of src; what follows it is not looked at.
func Decode(src []byte) (Header, error) {
	if len(src) < HeaderSize {
		return Header{}, &CodecError{ErrShort, uint64(len(src)), HeaderSize}
	}
	le, b := binary.LittleEndian, src[:HeaderSize]
	if m := le.Uint16(b); m != Magic {
		return Header{}, &CodecError{ErrMagic, uint64(m), Magic}
	}
	if b[2] != Version {
		return Header{}, &CodecError{ErrVersion, uint64(b[2]), Version}
	}
	if found, want := Checksum(b[:124]), le.Uint32(b[124:]); found != want {
		return Header{}, &CodecError{ErrHeaderCRC, uint64(found), uint64(want)}
	}
	h := Header{
		Kind:        Kind(b[3]),
		Run:         le.Uint64(b[4:]),
		Topology:    le.Uint32(b[12:]),
		Build:       le.Uint64(b[16:]),
		Src:         le.Uint16(b[24:]),
		Dst:         le.Uint16(b[26:]),
		Incarnation: le.Uint32(b[28:]),
		Chan:        le.Uint16(b[32:]),
		Step:        le.Uint32(b[34:]),
		Microbatch:  le.Uint16(b[38:]),
		Op:          le.Uint16(b[40:]),
		Layer:       le.Uint16(b[42:]),
		Phase:       le.Uint16(b[44:]),
		Chunk:       le.Uint16(b[46:]),
		Chunks:      le.Uint16(b[48:]),
		Seq:         le.Uint64(b[50:]),
		Edge:        le.Uint64(b[58:]),
		DType:       tensor.DType(b[66]),
		NDim:        b[67],
		Log:         le.Uint64(b[84:]),
		Len:         le.Uint32(b[116:]),
		PayloadCRC:  le.Uint32(b[120:]),
	}
	for i := range h.Shape {
		h.Shape[i] = le.Uint32(b[68+4*i:])
	}
	return h, nil
}

// DecodeFrame reads a header and the payload right behind it, and checks both. The payload is a view of src.
func DecodeFrame(src []byte) (Header, []byte, error) {
	h, err := Decode(src)
	if err != nil {
		return h, nil, err
	}
	payload := src[HeaderSize:]
	return h, payload, h.CheckPayload(payload)
}
