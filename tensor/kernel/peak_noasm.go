//go:build !amd64

package kernel

// peakLoop is the portable loop and the operations of one round.
func peakLoop(Path) (f func(int), perRound float64) { return peakPortable, 2 * 4 }
