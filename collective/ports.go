package collective

import (
	"fmt"

	"phalanx/nn"
)

// Ports keep the values that a program has been sent until it receives them, each sender's of a name in order. The zero
// value is empty.
type Ports struct {
	values map[Receive][]any
	n      int
}

// Put adds what a program has sent.
func (p *Ports) Put(from nn.Program, s Sent) {
	if p.values == nil {
		p.values = map[Receive][]any{}
	}
	k := Receive{From: from, Name: s.Name}
	p.values[k] = append(p.values[k], s.V)
	p.n++
}

// Take is the oldest value that is asked for, if one is there.
func (p *Ports) Take(q Receive) (v any, ok bool) {
	list := p.values[q]
	if len(list) == 0 {
		return nil, false
	}
	v, list[0] = list[0], nil
	p.values[q] = list[1:]
	if len(list) == 1 {
		delete(p.values, q)
	}
	p.n--
	return v, true
}

// Len is the number of values.
func (p *Ports) Len() int { return p.n }

// left names the values that are there, as `2 "loss"`, in no order.
func (p *Ports) left() (names []string) {
	for q, list := range p.values {
		names = append(names, fmt.Sprintf("%d %q", len(list), q.Name))
	}
	return names
}
