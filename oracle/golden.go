package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"phalanx/internal/golden"
	"phalanx/nn"
)

// RecordsCase says what a comparison with a reference case needs: every tensor of step 0, figures of later steps.
func RecordsCase(name string, step int) bool {
	if step == 0 {
		return !strings.HasSuffix(name, "position_ids") && (name == "lm.logits" || !strings.HasSuffix(name, ".logits") || strings.HasSuffix(name, "router.logits"))
	}
	for _, s := range []string{".loss_sum", ".tokens", ".aux_loss", ".seq_aux_loss", ".global_aux_loss", ".z_loss", ".tokens_per_expert"} {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

func (m *comparison) config(key string, otherwise float64) float64 {
	switch v := m.c.Config[key].(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	return otherwise
}

func (m *comparison) layers() int { return int(m.config("num_layers", 0)) }
func (m *comparison) depths() int { return int(m.config("mtp_num_layers", 0)) }

// scope is the name of layer l: decoder layers first, then depths.
func (m *comparison) scope(l int) string {
	if l < m.layers() {
		return fmt.Sprintf("layer.%d", l)
	}
	return fmt.Sprintf("mtp.%d", l-m.layers()+1)
}

// tensors compares everything expected of step 0.
func (m *comparison) tensors() error {
	for mb := range m.c.Steps[0].Microbatches {
		for _, name := range m.c.ExpectNames(mb) {
			if err := m.tensor(mb, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// tensor compares one expected tensor of a microbatch of step 0.
func (m *comparison) tensor(mb int, name string) error {
	kind, rest, nested := strings.Cut(name, "/")
	var ours, quantity string
	seqMajor := false // the case has [b, s, …], we have rows s·B + b
	var l int
	switch {
	case scan(name, "hidden.%d", &l):
		ours, quantity, seqMajor = m.scope(l)+".hidden", "hidden", true
	case name == "lm_logits":
		ours, quantity, seqMajor = "lm.logits", name, true
	case name == "lm_token_loss":
		ours, quantity = "lm.token_loss", name
	case nested && scan(kind, "mtp%d", &l):
		ours, quantity = fmt.Sprintf("mtp.%d.%s", l, rest), "mtp."+rest
	case nested && scan(kind, "router%d", &l):
		ours, quantity = m.scope(l)+".router."+rest, "router."+rest
	default:
		return fmt.Errorf("the case expects %s, which this version does not know", name)
	}
	got, err := m.get(ours, 0, mb)
	if err != nil {
		return err
	}
	want, err := m.expected(mb, name)
	if err != nil {
		return err
	}
	if seqMajor {
		want.Data = sequenceMajor(want.Data, want.Shape)
	}
	where := fmt.Sprintf("step 1 microbatch %d %s", mb, ours)
	if got.Exact {
		m.exact(quantity, where, got.Data, want.Data)
	} else {
		m.close(quantity, where, got.Data, want.Data, m.tol.Step0)
	}
	return nil
}

// scan matches a name with one number in it, whole.
func scan(name, pattern string, n *int) bool {
	if _, err := fmt.Sscanf(name, pattern, n); err != nil {
		return false
	}
	return fmt.Sprintf(pattern, *n) == name
}

// expected reads a tensor of any type as numbers.
func (m *comparison) expected(mb int, name string) (golden.Array[float64], error) {
	info, _ := m.c.Info(fmt.Sprintf("step0/mb%d/expect/%s", mb, name))
	switch info.DType {
	case "I64":
		a, err := m.c.ExpectInts(mb, name)
		return golden.Array[float64]{Shape: a.Shape, Data: nn.Float64s(a.Data)}, err
	case "BOOL":
		a, err := m.c.ExpectBools(mb, name)
		return golden.Array[float64]{Shape: a.Shape, Data: nn.Bools(a.Data)}, err
	}
	return m.c.ExpectFloats(mb, name)
}

// sequenceMajor turns [b, s, c] into rows s·B + b.
func sequenceMajor(x []float64, shape []int) []float64 {
	b, s, c := shape[0], shape[1], shape[2]
	out := make([]float64, len(x))
	for i := range b {
		for j := range s {
			copy(out[(j*b+i)*c:(j*b+i+1)*c], x[(i*s+j)*c:])
		}
	}
	return out
}

// scalars compares the figures of every step.
func (m *comparison) scalars() error {
	for i, step := range m.c.Steps {
		tol := m.tol.Later
		if i == 0 {
			tol = m.tol.Step0
		}
		objective := objective{perToken: m.c.Config["calculate_per_token_loss"] == true, mtp: m.config("mtp_loss_scaling_factor", 0.1) / math.Max(1, float64(m.depths()))}
		for mb, want := range step.Microbatches {
			if err := m.figures(i, mb, want, tol, &objective); err != nil {
				return err
			}
		}
		m.close("objective", fmt.Sprintf("step %d", i+1), []float64{objective.value()}, []float64{step.Objective}, tol)
		if i >= len(m.o.GradNorms) {
			return fmt.Errorf("the run has %d steps, the case %d", len(m.o.GradNorms), len(m.c.Steps))
		}
		m.close("grad_norm", fmt.Sprintf("step %d", i+1), m.o.GradNorms[i:i+1], []float64{step.GradNorm}, tol)
	}
	return nil
}

// figures compares the figures of one microbatch and adds its part to the objective.
func (m *comparison) figures(step, mb int, want golden.Scalars, tol float64, obj *objective) error {
	where := func(what string) string { return fmt.Sprintf("step %d microbatch %d %s", step+1, mb, what) }
	sum, n, err := m.loss("lm", step, mb)
	if err != nil {
		return err
	}
	m.close("lm_loss", where("lm loss sum"), []float64{sum}, []float64{want.LMLossSum}, tol)
	m.exact("tokens", where("lm tokens"), []float64{n}, []float64{float64(want.LMTokens)})
	obj.add(0, 1, sum, n)
	for k := range want.MTPLossSum {
		scope := fmt.Sprintf("mtp.%d", k+1)
		if sum, n, err = m.loss(scope, step, mb); err != nil {
			return err
		}
		m.close("mtp_loss", where(scope+" loss sum"), []float64{sum}, []float64{want.MTPLossSum[k]}, tol)
		m.exact("tokens", where(scope+" tokens"), []float64{n}, []float64{float64(want.MTPTokens[k])})
		obj.add(k+1, obj.mtp, sum, n)
	}
	obj.microbatches++
	return m.auxiliary(step, mb, want, tol, obj, where)
}

func (m *comparison) loss(scope string, step, mb int) (sum, tokens float64, err error) {
	s, err := m.get(scope+".loss_sum", step, mb)
	if err != nil {
		return 0, 0, err
	}
	n, err := m.get(scope+".tokens", step, mb)
	if err != nil {
		return 0, 0, err
	}
	return s.Data[0], n.Data[0], nil
}

// auxiliary compares auxiliary losses and token counts of every layer.
func (m *comparison) auxiliary(step, mb int, want golden.Scalars, tol float64, obj *objective, where func(string) string) error {
	for _, kind := range slices.Sorted(maps.Keys(want.Aux)) {
		for _, l := range slices.Sorted(maps.Keys(want.Aux[kind])) {
			v, name := want.Aux[kind][l], m.scope(l)+".router."+kind
			got, err := m.get(name, step, mb)
			if err != nil {
				return err
			}
			m.close(kind, where(name), got.Data, []float64{v}, tol)
			coeff := m.config("moe_aux_loss_coeff", 0)
			if kind == "z_loss" {
				coeff = m.config("moe_z_loss_coeff", 0)
			}
			obj.aux += coeff * got.Data[0]
		}
	}
	if step > 0 && !m.fp64 {
		return nil // near ties may fall the other way in fp32 once weights have moved
	}
	for l, counts := range want.TokensPerExpert {
		name := m.scope(l) + ".router.tokens_per_expert"
		got, err := m.get(name, step, mb)
		if err != nil {
			return err
		}
		m.exact("tokens_per_expert", where(name), got.Data, nn.Float64s(counts))
	}
	return nil
}

// objective is the scalar whose gradient is taken, put together from a run's own figures.
type objective struct {
	perToken     bool
	mtp          float64 // mtp_loss_scaling_factor / D
	microbatches int
	weight       []float64
	sums, tokens []float64 // per term over the step
	means        []float64 // per term: Σ over microbatches of masked means
	aux          float64   // Σ over microbatches
}

func (o *objective) add(term int, weight, sum, tokens float64) {
	for len(o.sums) <= term {
		o.weight, o.sums, o.tokens, o.means = append(o.weight, 0), append(o.sums, 0), append(o.tokens, 0), append(o.means, 0)
	}
	o.weight[term] = weight
	o.sums[term] += sum
	o.tokens[term] += tokens
	o.means[term] += sum / math.Max(tokens, 1)
}

func (o *objective) value() float64 {
	m := float64(o.microbatches)
	total := o.aux / m
	for t := range o.sums {
		if o.perToken {
			total += o.weight[t] * o.sums[t] / math.Max(o.tokens[t], 1)
		} else {
			total += o.weight[t] * o.means[t] / m
		}
	}
	return total
}
