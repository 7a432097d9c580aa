package data

import (
	"hash/fnv"
	"math/bits"

	"phalanx/tensor/kernel"
)

// stream is a sequence of random numbers that is a pure function of (seed, name, index): Philox over a counter.
type stream struct {
	key   [2]uint32
	ctr   [4]uint32 // index low, index high, block, hash of the name
	block [4]uint32
	used  int
}

// newStream starts the stream of an index, for example of a row.
func newStream(seed uint64, name string, index int) *stream {
	h := fnv.New32a()
	h.Write([]byte(name)) // a hash never fails
	i := uint64(index)
	return &stream{
		key:  [2]uint32{uint32(seed), uint32(seed >> 32)},
		ctr:  [4]uint32{uint32(i), uint32(i >> 32), 0, h.Sum32()},
		used: 4,
	}
}

// next is 32 random bits.
func (s *stream) next() uint32 {
	if s.used == len(s.block) {
		s.block = kernel.Philox(s.key, s.ctr)
		s.ctr[2]++
		s.used = 0
	}
	s.used++
	return s.block[s.used-1]
}

// below is a number in [0, n), 0 < n < 2^32. The bias, at most n/2^32, does not matter for data.
func (s *stream) below(n int) int {
	return int(uint64(s.next()) * uint64(n) >> 32)
}

// normal is a standard normal number, drawn from 53 bits.
func (s *stream) normal() float64 {
	high, low := uint64(s.next()), uint64(s.next())
	return kernel.NormalFromUniform((float64(high<<21|low>>11) + 0.5) / (1 << 53))
}

// order is the order in which the samples of a dataset are used: epoch after epoch, each a permutation.
type order struct {
	n       int // samples
	seed    uint64
	name    string
	shuffle bool
}

// at is the sample at place g of the run.
func (o order) at(g int) int {
	if !o.shuffle {
		return g % o.n
	}
	return permute(g%o.n, o.n, newStream(o.seed, o.name, g/o.n))
}

// feistelRounds of a Feistel network with a random round function give a pseudorandom permutation.
const feistelRounds = 4

// permute is where a random permutation of [0, n) takes i. It holds no table: a Feistel network permutes the numbers
// of 2·half bits, the fewest that reach n, and is walked until it lands below n, fewer than 4 times on average.
func permute(i, n int, keys *stream) int {
	half := (bits.Len(uint(n-1)) + 1) / 2
	mask := uint32(1)<<half - 1
	var round [feistelRounds]uint32
	for r := range round {
		round[r] = keys.next()
	}
	for {
		left, right := uint32(i>>half), uint32(i)&mask
		for _, key := range round {
			f := kernel.Philox([2]uint32{key, uint32(half)}, [4]uint32{right})[0]
			left, right = right, left^f&mask
		}
		if i = int(left)<<half | int(right); i < n {
			return i
		}
	}
}
