package data

// chainSymbols is the alphabet of the synthetic language: few enough that a small model learns it in some hundred
// steps, spread over the vocabulary so that every vocabulary shard has some.
const chainSymbols = 16

// chain is a noisy Markov chain of order 2 with tables drawn from the seed: the next symbol follows the last one by
// one table (45 %), the last two by another (45 %), or is any symbol (10 %). So a model first learns frequencies,
// then pairs, then triples, and its loss falls in steps.
type chain struct {
	v, k   int
	first  []uint8 // [k]: by the last symbol
	second []uint8 // [k, k]: by the last two
}

func newChain(seed uint64, v int) *chain {
	c := &chain{v: v, k: min(v, chainSymbols)}
	c.first, c.second = make([]uint8, c.k), make([]uint8, c.k*c.k)
	r := newStream(seed, "synthetic tables", 0)
	for i := range c.first {
		c.first[i] = uint8(r.below(c.k))
	}
	for i := range c.second {
		c.second[i] = uint8(r.below(c.k))
	}
	return c
}

// tokens is n tokens of the language.
func (c *chain) tokens(n int, r *stream) []int32 {
	out := make([]int32, n)
	a, b := r.below(c.k), r.below(c.k)
	for i := range out {
		a, b = b, c.follow(a, b, r)
		out[i] = int32(b * c.v / c.k)
	}
	return out
}

// follow is the symbol after a, b.
func (c *chain) follow(a, b int, r *stream) int {
	switch p := r.below(100); {
	case p < 45:
		return int(c.first[b])
	case p < 90:
		return int(c.second[a*c.k+b])
	}
	return r.below(c.k)
}
