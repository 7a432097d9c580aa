package recording

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"phalanx/messages"
	"phalanx/recovery"
)

// scanner goes through the file of one life.
type scanner struct {
	t    *Tape
	file int
	path string
	r    *bufio.Reader
	at   int64
	life LifeOf
}

// add reads the file of one life into the tape.
func (t *Tape) add(path string, want head) error {
	f, err := os.Open(path)
	if err != nil {
		return &FileError{Path: path, Err: err}
	}
	t.files = append(t.files, f)
	s := &scanner{t: t, file: len(t.files) - 1, path: path, r: bufio.NewReaderSize(f, bufferBytes)}
	b, err := s.take(headSize)
	if err == io.ErrUnexpectedEOF { // killed before its first record
		t.Lives = append(t.Lives, LifeOf{Incarnation: want.incarnation, Torn: true})
		return nil
	}
	h, headErr := decodeHead(b)
	switch {
	case errors.Join(err, headErr) != nil:
		return &FileError{Path: path, Err: errors.Join(err, headErr)}
	case h.build != want.build:
		return &FileError{path, fmt.Errorf("found build %016x, expected %016x", h.build, want.build), "replay it with the program that recorded it"}
	case h.rank != want.rank || h.incarnation != want.incarnation:
		return &FileError{Path: path, Err: fmt.Errorf("found rank %d, incarnation %d, expected %d and %d as its name says", h.rank, h.incarnation, want.rank, want.incarnation)}
	}
	s.life = LifeOf{Incarnation: h.incarnation, Step: h.step, Begun: h.step}
	if err := s.scan(); err != nil {
		t.Damage = append(t.Damage, err)
	}
	t.Lives = append(t.Lives, s.life)
	return nil
}

// scan reads records until the end, which may be in the middle of one. The error is damage.
func (s *scanner) scan() error {
	for {
		kind, err := s.take(1)
		if err == io.ErrUnexpectedEOF {
			return nil
		}
		if err == nil {
			err = s.record(kind[0])
		}
		if err == io.ErrUnexpectedEOF {
			s.life.Torn = true
			return nil
		}
		if err != nil {
			return err
		}
		s.life.Records++
	}
}

// take reads n bytes; io.ErrUnexpectedEOF: there are fewer.
func (s *scanner) take(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(s.r, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	s.at += int64(n)
	return b, err
}

// record reads one record behind its kind.
func (s *scanner) record(kind byte) error {
	start := s.at - 1
	switch kind {
	case received, sent:
		return s.message(kind, start)
	case begun:
		b, err := s.guarded(kind, 4, start)
		if err == nil {
			s.life.Begun = max(s.life.Begun, binary.LittleEndian.Uint32(b))
			if !s.t.Done {
				s.t.Begun = max(s.t.Begun, s.life.Begun)
			}
		}
		return err
	case done:
		_, err := s.guarded(kind, 0, start)
		if err == nil { // an earlier life may have been further, if the run was asked to stop
			s.t.Done, s.t.Begun = true, s.life.Begun
		}
		return err
	case weights:
		b, err := s.guarded(kind, 32, start)
		if err == nil {
			s.t.Weights = (*[32]byte)(b)
		}
		return err
	}
	return &DamageError{Path: s.path, At: start, Err: fmt.Errorf("found a record of kind %q, expected one of r, s, b, w, d", kind)}
}

// guarded is the body of a record of a few numbers.
func (s *scanner) guarded(kind byte, n int, start int64) ([]byte, error) {
	b, err := s.take(n + 4)
	if err != nil {
		return nil, err
	}
	body := b[:n:n]
	if found, want := messages.Checksum(append([]byte{kind}, body...)), binary.LittleEndian.Uint32(b[n:]); found != want {
		return nil, &DamageError{Path: s.path, At: start, Err: fmt.Errorf("found checksum %08x, expected %08x", found, want)}
	}
	return body, nil
}

// message notes where a message is. Its payload is checked when it is used.
func (s *scanner) message(kind byte, start int64) error {
	b, err := s.take(messages.HeaderSize)
	if err != nil {
		return err
	}
	h, err := messages.Decode(b)
	if err == nil && (kind == received) != (int(h.Dst) == s.t.Rank) {
		err = fmt.Errorf("found a message from %d to %d", h.Src, h.Dst)
	}
	if err != nil {
		return &DamageError{Path: s.path, At: start, Err: err}
	}
	e := entry{file: s.file, at: start + 1, id: binary.LittleEndian.Uint32(b[messages.HeaderSize-4:]), step: h.Step}
	if kind == received {
		n, err := s.r.Discard(int(h.Len))
		if s.at += int64(n); err != nil {
			return io.ErrUnexpectedEOF
		}
		e.len = h.Len
		s.t.note(s.t.received, in(h), h, e)
		return nil
	}
	s.t.note(s.t.sent, out(h), h, e)
	return nil
}

// note adds a message, and compares it with what earlier lives have recorded in its place.
func (t *Tape) note(all map[recovery.Edge]column, e recovery.Edge, h messages.Header, at entry) {
	if all[e] == nil {
		all[e] = column{}
	}
	before := all[e][h.Log]
	if len(before) > 0 && before[0].id != at.id && t.Conflict == nil {
		if first, _, err := t.read(entry{file: before[0].file, at: before[0].at}); err == nil {
			t.Conflict = &ConflictError{Rank: t.Rank, Sent: int(h.Src) == t.Rank, First: first, Second: h,
				Lives: [2]uint32{t.incarnation(before[0].file), t.incarnation(at.file)}}
		}
	}
	all[e][h.Log] = append(before, at)
}

// incarnation is that of a file, as its name says.
func (t *Tape) incarnation(file int) (inc uint32) {
	var rank uint32
	if _, err := fmt.Sscanf(filepath.Base(t.files[file].Name()), fileFormat, &rank, &inc); err != nil {
		return 0
	}
	return inc
}
