package kernel

// FMAPeak runs about iters rounds of independent float32 fused multiply-adds on registers and returns the number of
// floating-point operations done, an FMA being two. The caller takes the time: the quotient is the most that a
// product can reach on one core. A path that this CPU lacks counts as the best one it has.
func FMAPeak(path Path, iters int) (flops float64) {
	f, perRound := peakLoop(min(path, Best()))
	for iters > 0 {
		n := min(iters, peakRounds)
		f(n)
		flops += float64(n) * perRound
		iters -= n
	}
	return flops
}

// peakRounds is how many rounds one call does, about 10 µs: Go cannot preempt assembly.
const peakRounds = 4096

// peakSink keeps the portable loop from being removed.
var peakSink float32

// peakPortable is rounds times 4 emulated fused multiply-adds.
func peakPortable(rounds int) {
	var a, b, c, d float32
	x, y := float32(1.5), float32(0.5)
	for range rounds {
		a, b, c, d = fma32(x, y, a), fma32(x, y, b), fma32(x, y, c), fma32(x, y, d)
	}
	if a+b+c+d < 0 {
		peakSink = a
	}
}
