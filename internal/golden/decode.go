package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// wireCase is NAME.json.
type wireCase struct {
	Name      string          `json:"name"`
	About     string          `json:"about"`
	Config    json.RawMessage `json:"config"`
	Optimizer json.RawMessage `json:"optimizer"`
	DP        int             `json:"data_parallel_size"`
	Steps     []struct {
		Objective    *float64   `json:"objective"`
		GradNorm     *float64   `json:"grad_norm"`
		Microbatches []wireStep `json:"microbatches"`
	} `json:"steps"`
}

type wireStep struct {
	CuSeqlens       []int                         `json:"cu_seqlens"`
	CuSeqlensPadded []int                         `json:"cu_seqlens_padded"`
	LMLossSum       *float64                      `json:"lm_loss_sum"`
	LMTokens        *float64                      `json:"lm_tokens"`
	MTPLossSum      []float64                     `json:"mtp_loss_sum"`
	MTPTokens       []float64                     `json:"mtp_tokens"`
	Aux             map[string]map[string]float64 `json:"aux"`
	TokensPerExpert map[string][]int64            `json:"tokens_per_expert"`
}

// decode fills everything but the tensors.
func (c *Case) decode(raw []byte) error {
	var w wireCase
	if err := strict(raw, &w); err != nil {
		return &Error{Path: c.Path, Reason: "not the JSON of a reference case: " + err.Error(), Err: err}
	}
	if w.Name == "" || len(w.Steps) == 0 || w.DP < 1 {
		return c.broken("found name %q, %d steps, data_parallel_size %d; expected a name, at least one step and a positive size",
			w.Name, len(w.Steps), w.DP)
	}
	c.Name, c.About, c.DataParallelSize = w.Name, w.About, w.DP
	var err error
	if c.Config, err = section(w.Config); err != nil {
		return &Error{Path: c.Path, Reason: "config: " + err.Error(), Err: err}
	}
	if c.Optimizer, err = section(w.Optimizer); err != nil {
		return &Error{Path: c.Path, Reason: "optimizer: " + err.Error(), Err: err}
	}
	for i, s := range w.Steps {
		if s.Objective == nil || s.GradNorm == nil || len(s.Microbatches) == 0 {
			return c.broken("step %d: expected objective, grad_norm and at least one microbatch", i)
		}
		step := Step{Objective: *s.Objective, GradNorm: *s.GradNorm}
		for j, m := range s.Microbatches {
			scalars, err := m.scalars()
			if err != nil {
				return &Error{Path: c.Path, Reason: fmt.Sprintf("step %d microbatch %d: %v", i, j, err), Err: err}
			}
			step.Microbatches = append(step.Microbatches, scalars)
		}
		c.Steps = append(c.Steps, step)
	}
	return nil
}

// scalars checks what is there and turns layers into numbers.
func (m wireStep) scalars() (Scalars, error) {
	s := Scalars{CuSeqlens: m.CuSeqlens, CuSeqlensPadded: m.CuSeqlensPadded, MTPLossSum: m.MTPLossSum,
		Aux: map[string]map[int]float64{}}
	if m.LMLossSum == nil || m.LMTokens == nil || len(m.MTPLossSum) != len(m.MTPTokens) {
		return s, errors.New("expected lm_loss_sum, lm_tokens, and mtp_loss_sum as long as mtp_tokens")
	}
	s.LMLossSum, s.LMTokens = *m.LMLossSum, int64(*m.LMTokens)
	for _, n := range m.MTPTokens {
		s.MTPTokens = append(s.MTPTokens, int64(n))
	}
	var err error
	for kind, values := range m.Aux {
		if s.Aux[kind], err = byLayer("aux."+kind, values); err != nil {
			return s, err
		}
	}
	s.TokensPerExpert, err = byLayer("tokens_per_expert", m.TokensPerExpert)
	return s, err
}

// byLayer turns the keys of a JSON object into layer numbers.
func byLayer[T any](what string, values map[string]T) (map[int]T, error) {
	out := map[int]T{}
	for layer, v := range values {
		l, err := strconv.Atoi(layer)
		if err != nil {
			return nil, fmt.Errorf("%s: found layer %q, expected a number", what, layer)
		}
		out[l] = v
	}
	return out, nil
}

// strict decodes one JSON value with known fields and nothing after it.
func strict(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// section decodes an object whose numbers are int where they are whole, else float64.
func section(raw json.RawMessage) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil || m == nil {
		return nil, errors.New("expected an object of keys and values")
	}
	for k, v := range m {
		m[k] = number(v)
	}
	return m, nil
}

func number(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder has checked the syntax; too large is ±Inf
		return f
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = number(out[i])
		}
		return out
	}
	return v
}
