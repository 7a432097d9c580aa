package moe

// Replay records the choices of a router and plays them back: probabilities are computed anew from
// the present scores. One entry per forward, in the order of the forwards; a recomputed forward has the entry of the
// first one.
type Replay struct {
	Record  bool
	Choices [][]int32 // [N, K] of each forward
	next    int
	entry   map[forwardKey]int // of the step's forwards
}

// exchange records the choice of a forward, or puts the recorded one in its place and has every row's probabilities
// computed again. Nil does nothing.
func (p *Replay) exchange(f forwardKey, again bool, choice []int32, redo func(row int), k int) {
	if p == nil {
		return
	}
	if !again {
		p.advance(f, choice)
	}
	if p.Record {
		return
	}
	copy(choice, p.Choices[p.entry[f]])
	for i := range len(choice) / k {
		redo(i)
	}
}

// advance gives a forward its entry: a new one, or the next of those recorded.
func (p *Replay) advance(f forwardKey, choice []int32) {
	if p.entry == nil {
		p.entry = map[forwardKey]int{}
	}
	p.entry[f] = p.next
	if p.Record {
		p.Choices = append(p.Choices, append([]int32(nil), choice...))
	}
	p.next++
}

// Rewind starts playing from the first forward.
func (p *Replay) Rewind() { p.Record, p.next = false, 0 }
