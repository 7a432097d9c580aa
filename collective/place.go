// Package collective holds the pure machines of a rank: a program as a coroutine, the exchange of one group, and the
// diagnosis of who waits for whom. Values in, values out: no goroutine, channel, clock, logger or I/O. The actors
// carry the values between these machines; a simulator may do the same on virtual time.
package collective

import (
	"fmt"

	"phalanx/mesh"
	"phalanx/nn"
)

// Place is where a program runs.
type Place struct {
	Rank  int
	Sizes mesh.Sizes
	// Stopped, if set, is asked at every operation, Send and Recv: true unwinds the program as Stop does. A program
	// that never suspends (one rank, no depths) can be ended in no other way. It must not block.
	Stopped func() bool
}

// Of is the place of another rank of the same mesh.
func (p Place) Of(rank int) Place { return Place{Rank: rank, Sizes: p.Sizes} }

// String reads "rank 5 (tp 1 dp 1)": the axes that are split.
func (p Place) String() string {
	at := p.Sizes.Where(p.Rank)
	if at == "" {
		return fmt.Sprintf("rank %d", p.Rank)
	}
	return fmt.Sprintf("rank %d (%s)", p.Rank, at)
}

// ProgramName is what errors call a program: "stage" or "mtp.2".
func ProgramName(p nn.Program) string {
	switch p {
	case 0:
		return "stage"
	case nn.Reducer:
		return "reducer"
	}
	return fmt.Sprintf("mtp.%d", p)
}
