package config

import (
	"fmt"
	"strings"
)

// expectations holds the rules of each expectation.
func (c *checker) expectations() {
	for i := range c.s.Expect {
		c.expectation(&c.s.Expect[i], fmt.Sprintf("expect.%d", i))
	}
}

// comparisons are the comparisons an expectation makes.
func (e *Expect) comparisons() []string {
	var have []string
	for _, c := range []struct {
		name string
		set  bool
	}{
		{"equals", e.Equals != nil}, {"close", e.Close != nil}, {"below", e.Below != nil}, {"above", e.Above != nil},
		{"between", e.Between != nil}, {"finite", e.Finite}, {"refused", e.Refused != ""},
		{"same_as", e.SameAs != ""}, {"detected", e.Detected}, {"restarts", e.Restarts != nil},
	} {
		if c.set {
			have = append(have, c.name)
		}
	}
	return have
}

func (c *checker) expectation(e *Expect, at string) {
	if c.anyBad(at + ".") {
		return // a comparison that could not be read would be reported as missing
	}
	have := e.comparisons()
	switch {
	case len(have) == 0 && e.First != "":
		c.fail(at+".first", "names what detected: true is to find first; add detected: true, or remove first")
		return
	case len(have) == 0:
		c.fail(at, "compares nothing; expected exactly one of equals, close, below, above, between, finite: true, same_as, restarts, detected: true or refused")
		return
	case len(have) > 1:
		c.fail(at, "has "+strings.Join(have, " and ")+" at once; expected exactly one comparison, so write one expectation for each")
		return
	}
	c.quantity(e, at, have[0])
	c.whole(e, at, have[0])
	if e.Tolerance != 0 && e.Close == nil && e.SameAs == "" {
		c.fail(at+".tolerance", "goes with close and same_as, not with "+have[0]+"; remove it, or use close")
	}
	if e.Close != nil && e.Tolerance == 0 {
		c.fail(at+".tolerance", "0 leaves close no room; give a tolerance above 0, or use equals")
	}
	if n := len(e.Between); e.Between != nil && n != 2 {
		c.fail(at+".between", fmt.Sprintf("has length %d, expected two numbers: [low, high]", n))
	} else if n == 2 && e.Between[0] > e.Between[1] {
		c.fail(at+".between", fmt.Sprintf("found [%s, %s], expected the lower number first", number(e.Between[0]), number(e.Between[1])))
	}
	if e.Step != nil && *e.Step > c.s.Train.TrainIters {
		c.fail(at+".step", fmt.Sprintf("%d is beyond train_iters %d", *e.Step, c.s.Train.TrainIters), "train.train_iters")
	}
}

// quantity checks that an expectation names what it looks at, unless it looks at nothing (refused) or everything (finite).
func (c *checker) quantity(e *Expect, at, comparison string) {
	switch {
	case comparison == "same_as", comparison == "detected":
	case comparison == "restarts" && e.looks():
		c.fail(at, "restarts looks at no quantity, step, microbatch or row; remove them")
	case comparison == "restarts":
	case comparison != "refused" && comparison != "finite" && e.Quantity == "":
		c.fail(at, comparison+" needs a quantity; phalanx run --list-quantities FILE prints them")
	case comparison == "refused" && e.looks():
		c.fail(at, "refused looks at no quantity, step, microbatch or row; remove them")
	}
}

// looks reports whether an expectation says what it looks at.
func (e *Expect) looks() bool {
	return e.Quantity != "" || e.Step != nil || e.Microbatch != nil || e.Row != nil
}

// whole holds the rules of expectations that compare a whole run with another: same_as and detected.
func (c *checker) whole(e *Expect, at, comparison string) {
	switch {
	case comparison == "same_as" && e.looks():
		c.fail(at, "same_as compares every quantity of the run; remove quantity, step, microbatch and row")
	case e.SameAs == "without_faults" && len(c.s.Faults) == 0:
		c.fail(at+".same_as", "the scenario has no faults; name some, or remove without_faults", "faults")
	case comparison == "detected" && e.looks():
		c.fail(at, "detected compares every quantity of the run; remove quantity, step, microbatch and row, and say in first what differs first")
	case comparison == "detected" && len(c.s.Mutate) == 0:
		c.fail(at+".detected", "there is no planted bug to detect; name one in mutate, or remove detected", "mutate")
	case comparison != "detected" && e.First != "":
		c.fail(at+".first", "goes with detected: true, not with "+comparison+"; remove it, or use detected")
	}
	if best, _ := nearest(e.SameAs, []string{"single_rank", "without_faults"}); best != "" && best != e.SameAs && !strings.ContainsAny(e.SameAs, "./") {
		c.fail(at+".same_as", fmt.Sprintf("found %s, expected %s; did you mean %s?", show(e.SameAs), "single_rank, without_faults, or the file of a run's report", best))
	}
}

// variants holds the rules of the variants of a file. Their settings are checked run by run.
func (c *checker) variants() {
	vs := c.s.Variants
	if len(vs) > MaxVariants {
		c.fail("variants", fmt.Sprintf("has %d entries, expected at most %d", len(vs), MaxVariants))
		return
	}
	first := map[string]int{}
	for i, v := range vs {
		key := fmt.Sprintf("variants.%d.name", i)
		if !c.ok(key) {
			continue
		}
		if j, twice := first[v.Name]; twice {
			c.fail(key, fmt.Sprintf("%s is also the name of variant %d; names are unique", show(v.Name), j))
			continue
		}
		first[v.Name] = i
		if strings.Contains(v.Name, "/") {
			c.fail(key, fmt.Sprintf("found %s, expected a name without a slash: the run is named file/variant", show(v.Name)))
		}
		c.name(key, v.Name)
	}
}
