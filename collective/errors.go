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
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s is in %s; %s sent %s; program %s must call the same operations in the same order on every member",
		e.Self, e.Ours, e.Peer, e.Theirs, e.Program)
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

// PayloadError says that a message has the right name and the wrong number of bytes.
type PayloadError struct {
	Self, Peer  Place
	Name        OpName
	Found, Want int // bytes
}

func (e *PayloadError) Error() string {
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
