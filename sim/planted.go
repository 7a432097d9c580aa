package sim

import "phalanx/recovery"

// Bug is a deliberate fault around the machine of package recovery: of disks, of processes, of supervision, of counting.
type Bug uint8

// The planted bugs.
const (
	None         Bug = iota
	NoFence          // a process that has been replaced writes its snapshot
	DoubleCount      // a report of a step that is computed again is counted again
	NeverAsk         // nobody asks for a message that does not come
	LostUnasked      // nobody asks when a link begins anew
	NoSync           // a snapshot has its name before it has its bytes
	NoChecksum       // damaged messages are taken
	NoBarrier        // a rank sends its first message before it hears others
	LateStart        // an order to start an older incarnation is carried out
	NotSwapped       // a supervisor gives an incarnation without looking whether another has
	ExitUnheard      // nobody is told of deaths, and the others wait
	Impatient        // one sign of life that is late is a death
	MixedState       // a snapshot joins the numbers of one time to the state of another
	FreshNumbers     // groups of a new life count from the beginning
	OldestGoes       // of snapshots that a slow disk cannot take the oldest is left out
	LifeInBytes      // what a rank sends depends on its incarnation
	OldFinal         // the state told at the end is the last snapshot
	Unrepeatable     // the simulator itself: a choice by the order of a map
	bugEnd
)

var bugNames = [bugEnd]string{"none", "no_fence", "double_count", "never_ask", "lost_unasked", "no_sync", "no_checksum", "no_barrier", "late_start", "not_swapped",
	"exit_unheard", "impatient", "mixed_state", "fresh_numbers", "oldest_goes", "life_in_bytes", "old_final", "unrepeatable"}

// String is the bug's name.
func (b Bug) String() string { return bugNames[b] }

// Bugs are all planted bugs of this package.
func Bugs() []Bug {
	all := make([]Bug, 0, bugEnd-1)
	for b := None + 1; b < bugEnd; b++ {
		all = append(all, b)
	}
	return all
}

// mixed is the state of a snapshot with the numbers of now, see MixedState.
func (l *life) mixed(at recovery.State) recovery.State {
	now := l.m.Boundary(l.step + 1)
	now.Step = at.Step
	return now
}
