package train_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
	"phalanx/train"
)

// edge is the messages of a kind that a chunk takes.
type edge struct {
	kind train.OpKind
	to   int
}

func readOps(text string) ([]train.Op, error) {
	var out []train.Op
	for word := range strings.FieldsSeq(text) {
		var kind rune
		var op train.Op
		if _, err := fmt.Sscanf(word, "%c%d.%d", &kind, &op.Microbatch, &op.Chunk); err != nil {
			return nil, err
		}
		if kind == 'B' {
			op.Kind = train.BackwardOp
		}
		out = append(out, op)
	}
	return out, nil
}

// sim runs schedules with messages that are delayed and overtake each other. It derives who sends what from the layout
// alone: forward from chunk j to j+1, backward to j−1.
type sim struct {
	r       *rapid.T
	p       train.Pipeline
	l       mesh.Layout
	ops     [][]train.Op
	next    []int
	under   []string // messages on their way
	arrived map[string]bool
	waiting map[edge]int // sent and not taken
	bound   map[edge]int
}

func newSim(r *rapid.T, p train.Pipeline, l mesh.Layout, ops [][]train.Op) *sim {
	return &sim{r: r, p: p, l: l, ops: ops, next: make([]int, p.PP), arrived: map[string]bool{}, waiting: map[edge]int{}, bound: map[edge]int{}}
}

func (s *sim) name(kind train.OpKind, mb, chunk int) string { return fmt.Sprint(kind, mb, "@", chunk) }

// needs is the message that rank r's next op waits for.
func (s *sim) needs(r int) (name string, e edge, any bool) {
	op := s.ops[r][s.next[r]]
	j := op.Chunk*s.p.PP + r
	first := op.Kind == train.ForwardOp && j == 0 || op.Kind == train.BackwardOp && j == len(s.l.Chunks)-1
	return s.name(op.Kind, op.Microbatch, j), edge{op.Kind, j}, !first
}

func (s *sim) ready(r int) bool {
	if s.next[r] == len(s.ops[r]) {
		return false
	}
	name, _, any := s.needs(r)
	return !any || s.arrived[name]
}

func (s *sim) step(r int) {
	op := s.ops[r][s.next[r]]
	if name, e, any := s.needs(r); any {
		delete(s.arrived, name)
		s.waiting[e]--
	}
	s.next[r]++
	to := op.Chunk*s.p.PP + r + 1
	if op.Kind == train.BackwardOp {
		to -= 2
	}
	if to < 0 || to == len(s.l.Chunks) {
		return
	}
	e := edge{op.Kind, to}
	s.waiting[e]++
	if most, ok := s.bound[e]; ok {
		require.LessOrEqual(s.r, s.waiting[e], most, "mailbox of chunk %d", to)
	}
	s.under = append(s.under, s.name(op.Kind, op.Microbatch, to))
}

// run goes on at random until nothing can: the ranks that have not ended are returned.
func (s *sim) run() []int {
	for {
		var can []int
		for r := range s.ops {
			if s.ready(r) {
				can = append(can, r)
			}
		}
		n := len(can) + len(s.under)
		if n == 0 {
			break
		}
		i := rapid.IntRange(0, n-1).Draw(s.r, "next")
		if i < len(can) {
			s.step(can[i])
			continue
		}
		i -= len(can)
		s.arrived[s.under[i]] = true
		s.under = slices.Delete(s.under, i, i+1)
	}
	var stuck []int
	for r := range s.ops {
		if s.next[r] < len(s.ops[r]) {
			stuck = append(stuck, r)
		}
	}
	return stuck
}

// visit walks through every state that passes can reach and returns the most messages of each edge between sending and
// taking.
func visit(passes [][]train.Pass) map[edge]int {
	most, seen := map[edge]int{}, map[string]bool{}
	var walk func(next []int)
	walk = func(next []int) {
		if key := fmt.Sprint(next); seen[key] {
			return
		} else {
			seen[key] = true
		}
		waiting, sent := map[edge]int{}, map[string]bool{}
		for r, n := range next {
			for _, p := range passes[r][:n] {
				for _, m := range p.Gives {
					waiting[edge{m.Kind, m.Chunk}]++
					sent[m.String()] = true
				}
				for _, m := range p.Takes {
					waiting[edge{m.Kind, m.Chunk}]--
				}
			}
		}
		for e, n := range waiting {
			most[e] = max(most[e], n)
		}
		for r, n := range next {
			if n == len(passes[r]) || slices.ContainsFunc(passes[r][n].Takes, func(m train.Message) bool { return !sent[m.String()] }) {
				continue
			}
			on := slices.Clone(next)
			on[r]++
			walk(on)
		}
	}
	walk(make([]int, len(passes)))
	return most
}
