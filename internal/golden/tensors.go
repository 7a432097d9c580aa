package golden

import (
	"fmt"
	"strings"

	"phalanx/checkpoint"
)

// Array is a tensor of a case, row-major.
type Array[T any] struct {
	Shape []int
	Data  []T
}

// Prefixes of the tensors that are named after a parameter.
const (
	paramsPrefix = "params/"
	gradsPrefix  = "step0/expect/grads/"
	finalPrefix  = "final/expect/params/"
)

// ParamNames is the names of the weights, ascending, under their Hugging Face names.
func (c *Case) ParamNames() []string { return c.under(paramsPrefix) }

// GradNames is the names of the weights of which a gradient is expected, ascending.
func (c *Case) GradNames() []string { return c.under(gradsPrefix) }

// Param is a weight before step 0.
func (c *Case) Param(name string) (Array[float64], error) { return c.Floats(paramsPrefix + name) }

// Grad is the expected gradient of step 0, before clipping.
func (c *Case) Grad(name string) (Array[float64], error) { return c.Floats(gradsPrefix + name) }

// FinalParam is the expected weight after the last step.
func (c *Case) FinalParam(name string) (Array[float64], error) { return c.Floats(finalPrefix + name) }

// ExpectNames is what is expected of microbatch mb of step 0, ascending: lm_logits, mtp1/labels, router0/probs, …
func (c *Case) ExpectNames(mb int) []string { return c.under(expectPrefix(mb)) }

// ExpectFloats is an expected F64 tensor of microbatch mb of step 0 by a name of ExpectNames.
func (c *Case) ExpectFloats(mb int, name string) (Array[float64], error) {
	return c.Floats(expectPrefix(mb) + name)
}

// ExpectInts is an expected I64 tensor of microbatch mb of step 0.
func (c *Case) ExpectInts(mb int, name string) (Array[int64], error) {
	return c.Ints(expectPrefix(mb) + name)
}

// ExpectBools is an expected BOOL tensor of microbatch mb of step 0.
func (c *Case) ExpectBools(mb int, name string) (Array[bool], error) {
	return c.Bools(expectPrefix(mb) + name)
}

// Floats is a tensor of the file by its full name, such as step0/mb1/loss_mask.
func (c *Case) Floats(name string) (Array[float64], error) {
	return array(c, name, c.file.Float64s)
}

// Ints is an integer tensor of the file by its full name.
func (c *Case) Ints(name string) (Array[int64], error) {
	return array(c, name, c.file.Int64s)
}

// Bools is a BOOL tensor of the file by its full name.
func (c *Case) Bools(name string) (Array[bool], error) {
	return array(c, name, c.file.Bools)
}

// Info describes a tensor of the file by its full name; false when there is none.
func (c *Case) Info(name string) (checkpoint.Info, bool) { return c.file.Info(name) }

func array[T any](c *Case, name string, read func(string) ([]T, error)) (Array[T], error) {
	data, err := read(name)
	if err != nil {
		return Array[T]{}, &Error{Path: c.Path, Reason: err.Error(), Err: err}
	}
	info, _ := c.file.Info(name)
	return Array[T]{Shape: info.Shape, Data: data}, nil
}

func (c *Case) under(prefix string) []string {
	var out []string
	for _, n := range c.file.Names() {
		if rest, ok := strings.CutPrefix(n, prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

func expectPrefix(mb int) string              { return fmt.Sprintf("step0/mb%d/expect/", mb) }
func batchName(step, mb int, q string) string { return fmt.Sprintf("step%d/mb%d/%s", step, mb, q) }
