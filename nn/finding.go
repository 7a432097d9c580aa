package nn

// Finding is an error that a program panics with because of what it has computed: a check of the scenario has found
// something. The rank would find it again, so it is no death to recover from and ends the run.
type Finding interface {
	error
	Finding()
}
