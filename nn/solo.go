package nn

import (
	"fmt"

	"phalanx/mesh"
)

// Solo is the Comm of a job of one rank and one program: there is nobody to talk to, so every size is 1 and any
// exchange is a programmer error. Tests and single-program tools use it.
type Solo struct{}

// Size implements Comm.
func (Solo) Size(mesh.Axis) int { return 1 }

// Rank implements Comm.
func (Solo) Rank(mesh.Axis) int { return 0 }

// Do implements Comm.
func (Solo) Do(op *Op) { panic(fmt.Sprintf("nn: %v on a single rank", op)) }

// Send implements Comm.
func (Solo) Send(to Program, name string, _ any) {
	panic(fmt.Sprintf("nn: send of %s to program %d on a single program", name, to))
}

// Recv implements Comm.
func (Solo) Recv(from Program, name string) any {
	panic(fmt.Sprintf("nn: receive of %s from program %d on a single program", name, from))
}
