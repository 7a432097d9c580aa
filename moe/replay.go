package moe

// Replay records the choices of a router and plays them back (SEMANTICS §5.10): probabilities are computed anew from
// the present scores. One entry per forward, in the order of the forwards.
type Replay struct {
	Record  bool
	Choices [][]int32 // [N, K] of each forward
	next    int
}

// exchange records the choice of a forward, or puts the recorded one in its place and has every row's probabilities
// computed again. Nil does nothing.
func (p *Replay) exchange(choice []int32, redo func(row int), k int) {
	switch {
	case p == nil:
	case p.Record:
		p.Choices = append(p.Choices, append([]int32(nil), choice...))
	default:
		copy(choice, p.Choices[p.next])
		p.next++
		for i := range len(choice) / k {
			redo(i)
		}
	}
}

// Rewind starts playing from the first forward.
func (p *Replay) Rewind() { p.Record, p.next = false, 0 }
