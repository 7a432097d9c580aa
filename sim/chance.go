package sim

import "math/rand/v2"

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// question is what a die is thrown for. Every (question, from, to) has dice of its own, and the nth throw depends on
// nothing else: a fault that is left out does not change what is thrown elsewhere.
type question int

const (
	askPoint  question = iota // whether a process meets a fault at a point
	askKind                   // which
	askLasts                  // how long something lasts
	askLoss                   // whether a message is lost, doubled or damaged
	askWay                    // how long a message travels
	askLink                   // whether a link is cut or begins anew
	askTurn                   // how long a turn takes
	askNext                   // which program goes on
	askDisk                   // whether a disk is full
	askWrite                  // how long a disk takes
	askStart                  // how long a process takes to begin
	askPlane                  // how long the control plane takes
	askAgent                  // how long an agent takes
	askLeader                 // whether a supervisor dies
	askWindow                 // whether a message suffers from a window
	askLate                   // how much
	askOdd                    // for planted bugs
	questions
)

// dice are the throws of a seed.
type dice struct {
	seed   uint64
	peers  int
	thrown []uint64
}

func newDice(seed uint64, peers int) *dice {
	return &dice{seed: mix(seed + 0x9e3779b97f4a7c15), peers: peers, thrown: make([]uint64, int(questions)*peers*peers)}
}

// throw is the next number for a question, and which throw it is.
func (d *dice) throw(q question, from, to int) (number, nth uint64) {
	i := (int(q)*d.peers+from)*d.peers + to
	d.thrown[i]++
	return mix(d.seed ^ mix(uint64(i)<<40^d.thrown[i])), d.thrown[i]
}

// below is the next number for a question, from 0 up to but without n.
func (d *dice) below(n int64, q question, from, to int) int64 {
	x, _ := d.throw(q, from, to)
	return int64(x % uint64(max(n, 1)))
}

// mix is a permutation of 64-bit numbers in which every bit of the result depends on every bit given (SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
