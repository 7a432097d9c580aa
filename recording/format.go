// Package recording keeps on the disk what a rank needs to be run again alone: what it received, the checksums of what it sent, its
// snapshots, and how it ended. A folder holds a run:
//
//	run.json                                what the run was, see Run
//	scenario.yaml                           its scenario, normalised
//	rank-00003.inc-0000000002.recording     one life of one rank
//	snapshots/                              those of all ranks, see package snapshot
//
// A file of a life, little-endian, is only ever appended to:
//
//	offset  bytes  what
//	     0      4  magic "PxRc"
//	     4      4  version of this format, 1
//	     8      8  build, as in a message's header
//	    16      4  rank
//	    20      4  incarnation
//	    24      4  step at which the life began
//	    28      4  CRC-32C of all before
//	    32         records, each behind a byte that says which:
//	               'r' received: header (128 bytes, see package messages), payload
//	               's' sent: header
//	               'b' begun: steps that are done u32, CRC-32C u32
//	               'w' weights after the last step: SHA-256, CRC-32C u32
//	               'd' done: CRC-32C u32
//
// A header is canonical: with its edge's number (Log), length and checksum of the payload, and without what a link or a life puts
// into it. So the same message is the same 128 bytes in every life. A life that was killed ends in the middle of a record.
package recording

import (
	"encoding/binary"
	"fmt"

	"phalanx/messages"
	"phalanx/recovery"
)

const (
	magic    = "PxRc"
	version  = 1
	headSize = 32
)

// The kinds of record.
const (
	received = 'r'
	sent     = 's'
	begun    = 'b'
	weights  = 'w'
	done     = 'd'
)

// Names of what lies in the folder.
const (
	runName      = "run.json"
	ScenarioName = "scenario.yaml"
	snapshotsDir = "snapshots"
	fileFormat   = "rank-%05d.inc-%010d.recording"
)

// lifeIn is the incarnation in the name of a file of a rank; false: it is none.
func lifeIn(name string, rank int) (inc uint32, ok bool) {
	var of uint32
	_, err := fmt.Sscanf(name, fileFormat, &of, &inc)
	return inc, err == nil && int(of) == rank && name == fmt.Sprintf(fileFormat, of, inc)
}

// head is the beginning of a file.
type head struct {
	build                   uint64
	rank, incarnation, step uint32
}

func (h head) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(magic), version)
	b = le.AppendUint64(b, h.build)
	b = le.AppendUint32(b, h.rank)
	b = le.AppendUint32(b, h.incarnation)
	b = le.AppendUint32(b, h.step)
	return le.AppendUint32(b, messages.Checksum(b))
}

func decodeHead(b []byte) (h head, err error) {
	c := messages.ReadFrom(b)
	if m := string(c.Bytes(4)); m != magic {
		c.Fail(fmt.Sprintf("found %q, expected %q", m, magic))
	}
	if v := c.U32(); v != version {
		c.Fail(fmt.Sprintf("found version %d of the format, expected %d", v, version))
	}
	h = head{c.U64(), c.U32(), c.U32(), c.U32()}
	if found, want := messages.Checksum(b[:min(len(b), headSize-4)]), c.U32(); found != want {
		c.Fail(fmt.Sprintf("found checksum %08x, expected %08x", found, want))
	}
	return h, c.Err()
}

// Canonical is a header as it is recorded: what the message is, and nothing of the way it took. log is its number on its edge.
func Canonical(h messages.Header, payload []byte, log uint64) messages.Header {
	h.Run, h.Topology, h.Build, h.Incarnation, h.Edge, h.Chunk, h.Chunks = 0, 0, 0, 0, 0, 0, 1
	h.Kind, h.Log = messages.Data, log
	h.Seal(payload)
	return h
}

// guarded is a record of a few numbers with its checksum.
func guarded(kind byte, body []byte) []byte {
	b := append([]byte{kind}, body...)
	return binary.LittleEndian.AppendUint32(b, messages.Checksum(b))
}

// in and out are the edges that a message came and goes on.
func in(h messages.Header) recovery.Edge  { return recovery.Edge{Peer: h.Src, Chan: h.Chan} }
func out(h messages.Header) recovery.Edge { return recovery.Edge{Peer: h.Dst, Chan: h.Chan} }
