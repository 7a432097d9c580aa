// Package snapshot keeps the snapshots of ranks on the disk: what a rank needs to go on from the beginning of a step, in a file per
// rank, step and incarnation that is whole or not there.
//
// A file, little-endian:
//
//	offset  bytes  what
//	     0      4  magic "PxSn"
//	     4      2  version of this format, 1
//	     6      2  sections n
//	     8      8  build: hash of source version, architecture and normalised configuration, as in a message's header
//	    16      4  rank
//	    20      4  step: the steps that are done
//	    24      4  incarnation of the writer
//	    28    8·n  bytes of each section
//	28+8·n      4  CRC-32C of all before
//	32+8·n         the sections, one after the other
//	  last      4  CRC-32C of the sections
//
// State says what the sections of a rank are.
package snapshot

import (
	"encoding/binary"
	"fmt"
	"io"

	"phalanx/messages"
)

const (
	magic   = "PxSn"
	version = 1
	headMin = 28 // without sections and checksum
	// sectionsMax bounds the table of sections; a rank has three.
	sectionsMax = 64
)

// Head says what a file is of.
type Head struct {
	Build       uint64
	Rank        int
	Step        uint32
	Incarnation uint32
}

// encodeHead is everything in front of the sections.
func encodeHead(h Head, sections [][]byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headMin+8*len(sections)+4)
	b = append(b, magic...)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, uint16(len(sections)))
	b = le.AppendUint64(b, h.Build)
	b = le.AppendUint32(b, uint32(h.Rank))
	b = le.AppendUint32(b, h.Step)
	b = le.AppendUint32(b, h.Incarnation)
	for _, s := range sections {
		b = le.AppendUint64(b, uint64(len(s)))
	}
	return le.AppendUint32(b, messages.Checksum(b))
}

// size is the bytes of a file.
func size(sections [][]byte) int64 {
	n := int64(headMin + 8*len(sections) + 4 + 4)
	for _, s := range sections {
		n += int64(len(s))
	}
	return n
}

// encode writes a file. Sections are not copied.
func encode(w io.Writer, h Head, sections [][]byte) error {
	if _, err := w.Write(encodeHead(h, sections)); err != nil {
		return err
	}
	crc := uint32(0)
	for _, s := range sections {
		if _, err := w.Write(s); err != nil {
			return err
		}
		crc = messages.ChecksumMore(crc, s)
	}
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, crc))
	return err
}

// file is what a file holds. All slices are views of its bytes.
type file struct {
	head     Head
	sections [][]byte
	body     []byte // all sections
}

// decode reads a file.
func decode(b []byte) (f file, err error) {
	c := messages.ReadFrom(b)
	if m := string(c.Bytes(len(magic))); m != magic && c.Err() == nil {
		c.Fail(fmt.Sprintf("found %q, expected %q", m, magic))
	}
	if v := c.U16(); v != version && c.Err() == nil {
		c.Fail(fmt.Sprintf("found version %d of the format, expected %d", v, version))
	}
	n := int(c.U16())
	if n > sectionsMax {
		c.Fail(fmt.Sprintf("found %d sections, expected at most %d", n, sectionsMax))
	}
	f.head = Head{Build: c.U64(), Rank: int(c.U32()), Step: c.U32(), Incarnation: c.U32()}
	lengths := make([]uint64, min(n, sectionsMax))
	for i := range lengths {
		lengths[i] = c.U64()
	}
	covered := b[:len(b)-c.Left()]
	checked(c, "header", messages.Checksum(covered))
	body, crc := b[len(b)-c.Left():], uint32(0)
	for _, length := range lengths {
		if length > uint64(c.Left()) {
			c.Fail(fmt.Sprintf("found %d bytes, expected a section of %d", c.Left(), length))
			break
		}
		s := c.Bytes(int(length))
		f.sections, crc = append(f.sections, s), messages.ChecksumMore(crc, s)
	}
	f.body = body[:len(body)-c.Left()]
	checked(c, "sections", crc)
	return f, c.End()
}

// checked compares the checksum that follows with that of what it covers.
func checked(c *messages.Cursor, what string, found uint32) {
	if want := c.U32(); want != found && c.Err() == nil {
		c.Fail(fmt.Sprintf("found checksum %08x of the %s, expected %08x", found, what, want))
	}
}
