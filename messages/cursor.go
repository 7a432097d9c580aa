package messages

import (
	"encoding/binary"
	"fmt"
)

// Cursor reads little-endian numbers one after the other. After the first failure every read gives zero: check Err at the end.
type Cursor struct {
	rest []byte
	at   int
	err  error
}

// CursorError says that bytes end, or hold a number, where they must not.
type CursorError struct {
	At  int // offset
	Why string
}

func (e *CursorError) Error() string { return fmt.Sprintf("at byte %d: %s", e.At, e.Why) }

// ReadFrom is a cursor at the first of some bytes.
func ReadFrom(b []byte) *Cursor { return &Cursor{rest: b} }

// Bytes are the next n, as a view; nil after a failure.
func (c *Cursor) Bytes(n int) []byte {
	if c.err == nil && (n < 0 || n > len(c.rest)) {
		c.Fail(fmt.Sprintf("found %d bytes, expected %d", len(c.rest), n))
	}
	if c.err != nil {
		return nil
	}
	b := c.rest[:n:n]
	c.rest, c.at = c.rest[n:], c.at+n
	return b
}

// U8 is the next number of one byte.
func (c *Cursor) U8() uint8 {
	if b := c.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// U16 is the next number of two bytes.
func (c *Cursor) U16() uint16 {
	if b := c.Bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 is the next number of four bytes.
func (c *Cursor) U32() uint32 {
	if b := c.Bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 is the next number of eight bytes.
func (c *Cursor) U64() uint64 {
	if b := c.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Count is the next number of four bytes as the length of a list whose elements take at least size bytes each: more of them
// than the bytes left can hold is a failure, so that nobody reserves memory for what is not there.
func (c *Cursor) Count(size int) int {
	n := c.U32()
	if c.err == nil && uint64(n)*uint64(size) > uint64(len(c.rest)) {
		c.Fail(fmt.Sprintf("found a list of %d elements in %d bytes, expected at most %d", n, len(c.rest), len(c.rest)/size))
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// Left is how many bytes are left.
func (c *Cursor) Left() int { return len(c.rest) }

// Fail notes a failure where the cursor stands; the first one counts.
func (c *Cursor) Fail(why string) {
	if c.err == nil {
		c.err = &CursorError{At: c.at, Why: why}
	}
}

// Err is the first failure, a *CursorError.
func (c *Cursor) Err() error { return c.err }

// End is Err, or that bytes are left over.
func (c *Cursor) End() error {
	if len(c.rest) > 0 {
		c.Fail(fmt.Sprintf("found %d more bytes, expected the end", len(c.rest)))
	}
	return c.err
}
