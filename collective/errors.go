package collective

import (
	"fmt"

	"phalanx/messages"
)

// MismatchError says that two members of a group are in different operations at the same place of their channel:
// from here on no message would mean what the other side thinks.
type MismatchError struct {
	Self, Peer   Place
	Program      string // ProgramName
	Ours, Theirs OpName
	Over         bool // ours has ended: it needed nothing of the peer
}

func (e *MismatchError) Error() string {
	in := "is in"
	if e.Over {
		in = "has left"
	}
	return fmt.Sprintf("%s %s %s; %s sent %s; program %s must call the same operations in the same order on every member",
		e.Self, in, e.Ours, e.Peer, e.Theirs, e.Program)
}

// DivergenceError says that a message came twice under one name with different contents. What a rank sends is a
// function of its inputs by name, so the sender has diverged from its earlier self.
type DivergenceError struct {
	Self, Peer    Place
	Name          OpName
	Seq           uint64
	First, Second Print
}

func (e *DivergenceError) Error() string {
	return fmt.Sprintf("%s got message %d of %s from %s twice: first %s, then %s; a rank must send the same bytes under the same name",
		e.Self, e.Seq, e.Name, e.Peer, e.First, e.Second)
}

// Print is what is remembered of a received payload.
type Print struct {
	CRC uint32 // CRC-32C
	Len int
}

func (p Print) String() string { return fmt.Sprintf("%d bytes with crc %08x", p.Len, p.CRC) }

// AheadError says that a peer has sent more messages ahead of us than is kept. Members of a group cannot be that far
// apart: each operation needs all of them.
type AheadError struct {
	Self, Peer Place
	Name       OpName // of the message that was too much
	Limit      int
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("%s holds %d early messages of %s and got one more, %s: that peer waits for nobody", e.Self, e.Limit, e.Peer, e.Name)
}

// LateError says that a peer's first message of an operation came so long after its end that nothing is known of it
// any more. An operation ends with all the messages it needs.
type LateError struct {
	Self, Peer Place
	Name       OpName // as the message says
	Seq, Next  uint64 // of the message, and of our next operation
}

func (e *LateError) Error() string {
	return fmt.Sprintf("%s got message %d of %s, %s, and is at message %d: that operation ended without it", e.Self, e.Seq, e.Peer, e.Name, e.Next)
}

// unasked is the Want of a part that an exchange did not ask for.
const unasked = -1

// PayloadError says that a message has the right name and the wrong number of bytes.
type PayloadError struct {
	Self, Peer  Place
	Name        OpName
	Found, Want int // bytes; Want is −1 if nothing was asked of that peer
}

func (e *PayloadError) Error() string {
	if e.Want == unasked {
		return fmt.Sprintf("%s got %d bytes from %s for %s, in which it asked for nothing of that rank", e.Self, e.Found, e.Peer, e.Name)
	}
	return fmt.Sprintf("%s got %d bytes from %s for %s, expected %d", e.Self, e.Found, e.Peer, e.Name, e.Want)
}

// AddressError says that a message is not for this group at all.
type AddressError struct {
	Self   Place
	Axis   string
	Header messages.Header
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("the %s group of %s got a message of rank %d for rank %d on channel %#04x: it is not a member's message to this one",
		e.Axis, e.Self, e.Header.Src, e.Header.Dst, e.Header.Chan)
}
