package run

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/config"
	"phalanx/convert"
	"phalanx/nn"
)

// KeyError is what a key of the scenario asks for and the world does not have: bad input, found when the run begins.
type KeyError struct {
	Key string // dotted
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap gives the reason.
func (e *KeyError) Unwrap() error { return e.Err }

// CheckNames reports quantities that no run of the scenario has: in expectations, and in what a detection finds first.
func CheckNames(s config.Scenario) []*KeyError {
	known, err := Quantities(s)
	if err != nil {
		return nil
	}
	known = append(known, "grad_norm", "grad", "weight")
	for _, p := range parameters(&s) {
		known = append(known, "grad."+p, "weight."+p)
	}
	var bad []*KeyError
	check := func(i int, key, name string) {
		if name == "" {
			return
		}
		if err := checkName(known, name); err != nil {
			bad = append(bad, &KeyError{fmt.Sprintf("expect.%d.%s", i, key), err})
		}
	}
	for i, e := range s.Expect {
		check(i, "quantity", e.Quantity)
		check(i, "first", e.First)
		if n := s.NumMicrobatches() * s.DataParallel(); e.Microbatch != nil && *e.Microbatch >= n {
			bad = append(bad, &KeyError{fmt.Sprintf("expect.%d.microbatch", i), fmt.Errorf("found %d, expected one from 0 to %d: a step has %d", *e.Microbatch, n-1, n)})
		}
	}
	return bad
}

// checkName reports a name that is not among the known.
func checkName(known []string, text string) error {
	name, _, err := indexed(text)
	if err != nil || slices.Contains(known, name) || isMessages(name) {
		return err
	}
	hint := "`phalanx run --list-quantities FILE` prints the names"
	if best := config.Nearest(name, known); best != "" {
		hint = "did you mean " + best + "?"
	}
	return fmt.Errorf("no quantity is named %s; %s", name, hint)
}

// isMessages reports whether a name is a count of a kind of message: those of kinds that did not occur are 0.
func isMessages(name string) bool {
	rest, ok := strings.CutPrefix(name, "messages.")
	at := strings.LastIndexByte(rest, '.')
	if !ok || at < 0 || !slices.Contains([]string{"count", "bytes", "per_depth"}, rest[at+1:]) {
		return false
	}
	return slices.Contains(messageKinds(), rest[:at])
}

// messageKinds are the kinds of messages.
func messageKinds() []string {
	var kinds []string
	for t := nn.Tag(1); !strings.HasPrefix(t.String(), "tag("); t++ {
		kinds = append(kinds, t.String())
	}
	return kinds
}

// parameters are the names of what the model learns, and of the expert biases.
func parameters(s *config.Scenario) []string {
	var names []string
	for _, p := range convert.Parameters(&s.Model) {
		names = append(names, p.Name)
	}
	if s.Probe.BiasOnly {
		names = append(names, "probe.output_bias")
	}
	return names
}

// CheckLoad reports a checkpoint.load that the run would not find; out is --out.
func CheckLoad(s config.Scenario, out string) *KeyError {
	if s.Checkpoint.Load == "" {
		return nil
	}
	j := &job{s: s, o: Options{Out: out}}
	err := j.load()
	_ = j.close() // read only
	if err != nil {
		return &KeyError{"checkpoint.load", err}
	}
	return nil
}
