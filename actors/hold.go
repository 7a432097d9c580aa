package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"phalanx/collective"
	"phalanx/nn"
	"phalanx/recovery"
)

// A rank that holds at a boundary is a program that waits for a value, which the gate sends: its actors answer and its keeper
// serves others meanwhile.

// endPort is where the stage program waits for the gate.
const endPort = "end"

// ends is Life.Ends of this life. The keeper gets word behind everything that the rank has reported.
func (k *rank) ends(g Gate) func(c nn.Comm, step int) bool {
	self := k.run.system.NewLocalPID(k.life.path)
	return func(c nn.Comm, step int) bool {
		pass := g.At(k.rank, uint32(step), func(ends bool) { k.run.system.Root.Send(self, value{0, collective.Sent{Name: endPort, V: ends}}) })
		if pass != recovery.Waits {
			return pass == recovery.Ends
		}
		k.run.system.Root.Send(k.life.keeper, holding{k.life.n, uint32(step)})
		return c.Recv(0, endPort).(bool)
	}
}

// greetEvery is how often the collector is asked what it has, while it has not answered this life.
const greetEvery = 250 * time.Millisecond

// greet asks it, if somebody waits for the answer.
func (k *keeper) greet(ctx actor.Context) {
	if k.holds == nil || k.machine == nil {
		return
	}
	k.reported()
	if k.holds != nil && time.Since(k.greeted) >= greetEvery {
		k.greeted = time.Now()
		k.do(ctx, k.machine.Greet())
	}
}

// reported tells the gate of a rank that holds what the collector has of it, once that is known. The rank reports no more
// until it goes on.
func (k *keeper) reported() {
	if ahead, known := k.machine.Reported(); known {
		k.run.part().Gate.Reported(k.rank, k.holds.step, ahead)
		k.holds = nil
	}
}
