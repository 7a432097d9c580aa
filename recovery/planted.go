package recovery

// Bug is a deliberate fault of the protocol. Each is one that somebody made, or nearly; the simulator must find it.
type Bug uint8

// The planted bugs of this package. The simulator plants others around it.
const (
	None                 Bug = iota
	MinimumOfNewest          // commits the least of the newest snapshots, which not every rank has
	NoJump                   // a rank that is told it is too old goes on asking
	EarlyApply               // messages reach the groups before recovery is over
	DoubleApply              // a message that was delivered is delivered again
	TrimEarly                // the log of the committed step itself is freed
	DoneStopsServing         // a rank that has ended answers nobody
	StaleGeneration          // a rank that is told of a generation goes back to it, whatever it has
	IncarnationUnchecked     // what an earlier life says counts
	NeverTrim                // the log of steps before the generation is kept
	NeverRepeat              // that a rank is done is said once
	bugEnd
)

var bugNames = [bugEnd]string{"none", "minimum_of_newest", "no_jump", "early_apply", "double_apply", "trim_early", "done_stops_serving",
	"stale_generation", "incarnation_unchecked", "never_trim", "never_repeat"}

// String is the bug's name.
func (b Bug) String() string { return bugNames[b] }

// Bugs are all planted bugs.
func Bugs() []Bug {
	all := make([]Bug, 0, bugEnd-1)
	for b := None + 1; b < bugEnd; b++ {
		all = append(all, b)
	}
	return all
}
