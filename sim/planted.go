package sim

// Bug is a deliberate fault around the machine of package recovery: of disks, of supervision, of counting.
type Bug uint8

// The planted bugs.
const (
	None        Bug = iota
	NoFence         // a life that has been replaced writes its snapshot
	DoubleCount     // a step that is computed again is counted again
	NeverAsk        // nobody asks for a message that does not come
	NoSync          // a snapshot has its name before it has its bytes
	NoChecksum      // damaged messages are taken
	bugEnd
)

var bugNames = [bugEnd]string{"none", "no_fence", "double_count", "never_ask", "no_sync", "no_checksum"}

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
