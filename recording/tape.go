package recording

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"phalanx/messages"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// Tape is what was recorded of a rank, its lives laid over each other: a message that several lives have recorded is one.
type Tape struct {
	Rank  int
	Lives []LifeOf // ascending by incarnation
	// Conflict is the first message, by life and place in its file, that two lives have recorded differently; nil: none.
	Conflict *ConflictError
	// Damage is what is wrong with files beside ends that are cut off.
	Damage []error

	Begun   uint32    // steps that were done at the last beginning of a step; of a rank that is done when it ended
	Done    bool      // the programs have ended; else the recording ends before
	Weights *[32]byte // hash after the last step; nil: not recorded

	Snapshots snapshot.Files

	world    int // ranks; peers from it on are none
	files    []*os.File
	received map[recovery.Edge]column
	sent     map[recovery.Edge]column
}

// LifeOf is one life of a rank.
type LifeOf struct {
	Incarnation, Step uint32 // where it began
	Records           int
	Begun             uint32 // steps that were done when it last began one
	Torn              bool   // it ends in the middle of a record
}

// column is the messages of an edge by number, each as recorded by one life or several.
type column map[uint64][]entry

// entry is where a message is recorded.
type entry struct {
	file int
	at   int64  // of the header
	id   uint32 // the header's checksum: equal headers, equal ids
	step uint32
	len  uint32 // of the payload behind it; 0 of what was sent
}

// ConflictError says that two lives of a rank have recorded one message differently.
type ConflictError struct {
	Rank          int
	Sent          bool // else received
	First, Second messages.Header
	Lives         [2]uint32 // incarnations
}

// Edge is that of the message.
func (e *ConflictError) Edge() recovery.Edge {
	if e.Sent {
		return out(e.First)
	}
	return in(e.First)
}

func (e *ConflictError) Error() string {
	what := "received"
	if e.Sent {
		what = "sent"
	}
	return fmt.Sprintf("rank %d has %s message %d of edge %s twice: incarnation %d with crc %08x (%s), incarnation %d with crc %08x (%s); a rank must send the same bytes in every life",
		e.Rank, what, e.First.Log, e.Edge(), e.Lives[0], e.First.PayloadCRC, e.First.String(), e.Lives[1], e.Second.PayloadCRC, e.Second.String())
}

// DamageError is a message whose record is damaged.
type DamageError struct {
	Path   string
	At     int64
	Header *messages.Header // nil: unreadable
	Err    error
}

func (e *DamageError) Error() string {
	what := "what is behind it in this file is lost"
	if e.Header != nil {
		what = fmt.Sprintf("it is message %d of edge %s (%s)", e.Header.Log, in(*e.Header), e.Header.String())
	}
	return fmt.Sprintf("%s: the record at byte %d is damaged: %v; %s", e.Path, e.At, e.Err, what)
}

// Unwrap says what is wrong.
func (e *DamageError) Unwrap() error { return e.Err }

// Open reads what was recorded of a rank. Close it when done. The error is a *FileError; files that are damaged are read as far
// as they go.
func Open(dir string, r Run, rank int, build uint64) (*Tape, error) {
	t := &Tape{Rank: rank, world: r.World, received: map[recovery.Edge]column{}, sent: map[recovery.Edge]column{}}
	t.Snapshots = snapshot.Read(r.SnapshotsIn(dir), snapshot.Options{Rank: rank, Build: build})
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &FileError{Path: dir, Err: err}
	}
	var lives []uint32
	for _, e := range entries {
		if inc, ok := lifeIn(e.Name(), rank); ok {
			lives = append(lives, inc)
		}
	}
	if len(lives) == 0 {
		return nil, &FileError{Path: dir, Err: fmt.Errorf("nothing is recorded of rank %d", rank)}
	}
	slices.Sort(lives)
	for _, inc := range lives {
		if err := t.add(filepath.Join(dir, fmt.Sprintf(fileFormat, rank, inc)), head{build: build, rank: uint32(rank), incarnation: inc}); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// Close closes the files.
func (t *Tape) Close() (err error) {
	for _, f := range t.files {
		err = errors.Join(err, f.Close())
	}
	t.files = nil
	return err
}

// Received is a message of an edge by its number; false: it is not recorded. The error is a *DamageError.
func (t *Tape) Received(e recovery.Edge, log uint64) (h messages.Header, payload []byte, ok bool, err error) {
	for _, at := range t.received[e][log] {
		if h, payload, err = t.read(at); err == nil {
			return h, payload, true, nil
		}
	}
	return h, nil, false, err
}

// Sent is the header of a message of an edge by its number; false: it is not recorded.
func (t *Tape) Sent(e recovery.Edge, log uint64) (h messages.Header, ok bool, err error) {
	for _, at := range t.sent[e][log] {
		if h, _, err = t.read(at); err == nil {
			return h, true, nil
		}
	}
	return h, false, err
}

// SentUntil is the number behind the last message recorded on every edge. Of a run that was asked to stop what an earlier life
// has sent beyond the end does not count.
func (t *Tape) SentUntil() map[recovery.Edge]uint64 {
	last := map[recovery.Edge]uint64{}
	for e, c := range t.sent {
		for log, at := range c {
			if !t.Done || at[0].step < t.Begun {
				last[e] = max(last[e], log+1)
			}
		}
	}
	return last
}

// read reads a message again.
func (t *Tape) read(at entry) (messages.Header, []byte, error) {
	b := make([]byte, messages.HeaderSize+int(at.len))
	f := t.files[at.file]
	if _, err := f.ReadAt(b, at.at); err != nil {
		return messages.Header{}, nil, &DamageError{Path: f.Name(), At: at.at - 1, Err: err}
	}
	h, err := messages.Decode(b)
	if err != nil {
		return h, nil, &DamageError{Path: f.Name(), At: at.at - 1, Err: err}
	}
	payload := b[messages.HeaderSize:]
	if at.len > 0 {
		if err := h.CheckPayload(payload); err != nil {
			return h, nil, &DamageError{Path: f.Name(), At: at.at - 1, Header: &h, Err: err}
		}
	}
	return h, payload, nil
}
