package collective

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	diagnosisLines = 10 // a text that is read at once
	cycleLines     = 6  // links of a cycle that are spelled out
	namesMax       = 6  // programs that are listed by name
)

// Diagnose says in at most ten lines who waits for whom: first the roots (a finished or running program that others
// wait for, or a cycle), then how many wait for those. A program that merely waits is never called a cause.
func Diagnose(all []Status) string {
	g := graph{at: map[node]Status{}}
	for _, s := range all {
		g.at[node{s.Rank, s.Program}] = s
		if len(s.waitsFor()) > 0 {
			g.waiting = append(g.waiting, node{s.Rank, s.Program})
		}
	}
	if len(g.waiting) == 0 {
		return fmt.Sprintf("no deadlock: none of %d programs waits", len(all))
	}
	slices.SortFunc(g.waiting, compareNodes)
	lines := append(g.ends(), g.cycles()...)
	return g.text(lines)
}

// graph is the programs and their waits.
type graph struct {
	at      map[node]Status
	waiting []node // ascending
	named   map[node]bool
}

func compareNodes(a, b node) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.program, b.program))
}

// ends is a line for each program that does not wait itself and is waited for.
func (g *graph) ends() []string {
	g.named = map[node]bool{}
	first := map[node]node{} // root: the first that waits for it
	others := map[node]int{}
	var roots []node
	for _, n := range g.waiting {
		for _, t := range g.at[n].waitsFor() {
			if len(g.at[t].waitsFor()) > 0 {
				continue
			}
			if _, known := first[t]; !known {
				first[t] = n
				roots = append(roots, t)
			} else {
				others[t]++
			}
			g.named[n] = true
		}
	}
	slices.SortFunc(roots, compareNodes)
	lines := make([]string, len(roots))
	for i, t := range roots {
		lines[i] = g.at[first[t]].waits(t)
		if others[t] > 0 {
			lines[i] += fmt.Sprintf(" (and %d more)", others[t])
		}
		lines[i] += "; " + g.excuse(t)
	}
	return lines
}

// excuse is why a root does not answer.
func (g *graph) excuse(t node) string {
	s, known := g.at[t]
	switch {
	case !known:
		return fmt.Sprintf("nothing is known of %s", t)
	case s.State == Finished:
		return fmt.Sprintf("%s has finished its program (%s)", t, Reached(s.Site))
	case s.State == Running:
		return fmt.Sprintf("%s is computing (%s)", t, Reached(s.Site))
	}
	return fmt.Sprintf("%s has all it needs and must go on", t)
}

// cycles is the circles of waits, each once, from its lowest program.
func (g *graph) cycles() []string {
	var lines []string
	seen := map[node]bool{}
	for _, n := range g.waiting {
		if seen[n] {
			continue
		}
		if path := g.cycleFrom(n, seen); path != nil {
			lines = append(lines, g.describe(path))
		}
	}
	return lines
}

// cycleFrom walks depth first and returns the first circle, rotated to its lowest program; nil if there is none.
func (g *graph) cycleFrom(start node, seen map[node]bool) []node {
	var path []node
	onPath := map[node]int{}
	var walk func(node) []node
	walk = func(n node) []node {
		if i, ok := onPath[n]; ok {
			return rotate(path[i:])
		}
		if seen[n] {
			return nil
		}
		seen[n] = true
		onPath[n] = len(path)
		path = append(path, n)
		for _, t := range g.at[n].waitsFor() {
			if c := walk(t); c != nil {
				return c
			}
		}
		delete(onPath, n)
		path = path[:len(path)-1]
		return nil
	}
	return walk(start)
}

func rotate(circle []node) []node {
	low := 0
	for i := range circle {
		if compareNodes(circle[i], circle[low]) < 0 {
			low = i
		}
	}
	return slices.Concat(circle[low:], circle[:low])
}

// describe is a circle in words: every link with its operation.
func (g *graph) describe(path []node) string {
	for _, n := range path {
		g.named[n] = true
	}
	var links []string
	for i, n := range path[:min(len(path), cycleLines)] {
		links = append(links, g.at[n].waits(path[(i+1)%len(path)]))
	}
	if rest := len(path) - cycleLines; rest > 0 {
		links = append(links, fmt.Sprintf("… %d more, the last for %s", rest, path[0]))
	}
	return "cycle: " + strings.Join(links, ";\n  ")
}

// text joins the roots and those who wait for them.
func (g *graph) text(roots []string) string {
	lines := strings.Split("deadlock: "+strings.Join(roots, "\n"), "\n")
	var rest []string
	for _, n := range g.waiting {
		if !g.named[n] {
			rest = append(rest, n.String())
		}
	}
	room := diagnosisLines
	if len(rest) > 0 {
		room--
	}
	if len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %d more lines", more))
	}
	if len(rest) > 0 {
		list := strings.Join(rest[:min(len(rest), namesMax)], ", ")
		if len(rest) > namesMax {
			list += fmt.Sprintf(" and %d more", len(rest)-namesMax)
		}
		lines = append(lines, "waiting for these: "+list)
	}
	return strings.Join(lines, "\n")
}
