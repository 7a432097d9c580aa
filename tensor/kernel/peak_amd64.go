package kernel

// peakLoop is the loop for path and the operations of one round: 12 FMAs of 16 or 8 lanes.
func peakLoop(path Path) (f func(int), perRound float64) {
	switch path {
	case AVX512:
		return peakAVX512, 2 * 12 * 16
	case AVX2:
		return peakAVX2, 2 * 12 * 8
	}
	return peakPortable, 2 * 4
}
