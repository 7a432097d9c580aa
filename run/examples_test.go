package run_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/run"
)

var update = flag.Bool("update", false, "write scenarios/examples/weights and the table of docs/examples.md instead of checking them")

const (
	examplesDir  = "../scenarios/examples"
	examplesPage = "../docs/examples.md"
)

// exampleIDs are the public bugs that have a pair of files.
var exampleIDs = []string{"a1", "a2", "a3", "a5", "a7", "a9i", "a9ii", "a11", "a12", "b1", "b2", "b5", "b6", "b9", "b10", "b11",
	"c1", "c3", "c5", "c6", "d1", "d4", "d5", "d6", "e1", "g1", "g3", "g4", "g6", "g8", "m2"}

// example is one file of the folder.
type example struct {
	id, slug, kind, path string
	runs                 []config.Scenario
}

func (e example) command() string {
	return "go run ./cmd/phalanx run scenarios/examples/" + filepath.Base(e.path)
}

var exampleName = regexp.MustCompile(`^([a-z]\d+i*)-([a-z0-9-]+)-(clean|mutated|not-a-test)\.yaml$`)

// loadExamples are the files by id, then kind.
func loadExamples(t *testing.T) map[string]map[string]example {
	t.Helper()
	paths, err := filepath.Glob(examplesDir + "/*")
	require.NoError(t, err)
	all := map[string]map[string]example{}
	for _, path := range paths {
		if filepath.Base(path) == "weights" {
			continue
		}
		m := exampleName.FindStringSubmatch(filepath.Base(path))
		require.NotNil(t, m, "%s: expected ID-SLUG-clean.yaml, -mutated.yaml or -not-a-test.yaml", path)
		f, problems := config.Load(path, nil)
		require.Empty(t, problems)
		require.Equal(t, strings.TrimSuffix(filepath.Base(path), ".yaml"), f.Base.Name)
		if all[m[1]] == nil {
			all[m[1]] = map[string]example{}
		}
		all[m[1]][m[3]] = example{m[1], m[2], m[3], path, f.Runs()}
	}
	return all
}

// variant is the part of a run's name behind the file's.
func variant(s config.Scenario) string {
	_, v, _ := strings.Cut(s.Name, "/")
	return v
}

// twin is the clean run that a mutated one differs from in nothing but mutate and expect.
func twin(t *testing.T, clean example, mutated config.Scenario) config.Scenario {
	t.Helper()
	for _, s := range clean.runs {
		if variant(s) == variant(mutated) {
			return s
		}
	}
	t.Fatalf("%s has no clean twin in %s", mutated.Name, clean.path)
	return config.Scenario{}
}

func executed(t *testing.T, s config.Scenario) *run.Report {
	t.Helper()
	r, err := run.Execute(context.Background(), s, run.Options{})
	require.NoError(t, err, s.Name)
	require.Len(t, r.Expect, len(s.Expect), s.Name)
	return r
}

// holding executes a run in which every expectation must hold.
func holding(t *testing.T, s config.Scenario) {
	t.Helper()
	r := executed(t, s)
	for _, e := range r.Expect {
		require.True(t, e.OK, "%s: expect %s: got %s", s.Name, e.Text, e.Got)
	}
	require.Equal(t, "pass", r.Verdict, s.Name)
}

// TestExamplePairs: every id has both files, the right one says what the bug is, and the wrong one differs from it in one
// planted bug and in what is expected.
func TestExamplePairs(t *testing.T) {
	all := loadExamples(t)
	require.Len(t, all, len(exampleIDs))
	for _, id := range exampleIDs {
		clean, mutated := all[id]["clean"], all[id]["mutated"]
		require.NotEmpty(t, clean.runs, id)
		require.NotEmpty(t, mutated.runs, id)
		require.Equal(t, clean.slug, mutated.slug)
		for _, s := range clean.runs {
			require.Empty(t, s.Mutate, s.Name)
			require.NotEmpty(t, sources(s.About), s.Name)
			many := s.Sizes().World() > 1
			require.True(t, !many || slices.ContainsFunc(s.Expect, func(e config.Expect) bool { return e.SameAs == "single_rank" }), s.Name)
		}
		for _, s := range mutated.runs {
			require.Len(t, s.Mutate, 1, s.Name)
			require.Equal(t, stripped(twin(t, clean, s)), stripped(s), "%s and its twin", s.Name)
			detects := slices.ContainsFunc(s.Expect, func(e config.Expect) bool { return e.Detected && e.First != "" })
			require.True(t, detects, s.Name)
		}
	}
}

// stripped is what a pair must have in common.
func stripped(s config.Scenario) string {
	s.Name, s.About, s.Mutate, s.Expect = "x", "", nil, nil
	return string(s.Normalised())
}

// TestExamples runs every pair. Right and wrong values hold where they are expected, and not in the other's run: without
// the bug the wrong value and the detection fail, with it a right value does.
func TestExamples(t *testing.T) {
	all := loadExamples(t)
	for _, id := range exampleIDs {
		t.Run(id, func(t *testing.T) {
			clean, mutated := all[id]["clean"], all[id]["mutated"]
			for _, s := range clean.runs {
				holding(t, s)
			}
			for i, s := range mutated.runs {
				holding(t, s)
				crossed(t, twin(t, clean, s), s, i == 0)
			}
		})
	}
}

// crossed exchanges the expectations of a pair. If the page shows it without a wrong value, that is NaN.
func crossed(t *testing.T, clean, mutated config.Scenario, shown bool) {
	t.Helper()
	right, wrong := headline(clean, mutated)
	fixed := mutated
	fixed.Mutate = nil
	for i, e := range executed(t, fixed).Expect {
		if mutated.Expect[i].Detected || wrong != nil && at(mutated.Expect[i]) == at(*wrong) {
			require.False(t, e.OK, "%s: expect %s holds without the bug: got %s", mutated.Name, e.Text, e.Got)
		}
	}
	broken := clean
	broken.Mutate, broken.Expect = mutated.Mutate, slices.Clone(clean.Expect)
	broken.Expect = append(broken.Expect, config.Expect{Detected: true})
	for i, e := range executed(t, broken).Expect[:len(clean.Expect)] {
		if right != nil && at(clean.Expect[i]) == at(*right) || clean.Expect[i].SameAs != "" {
			require.False(t, e.OK, "%s: expect %s holds with %s: got %s", clean.Name, e.Text, mutated.Mutate[0], e.Got)
		}
		if shown && right != nil && wrong == nil && at(clean.Expect[i]) == at(*right) {
			require.Contains(t, e.Got, "NaN", "%s: expect %s", clean.Name, e.Text)
		}
	}
}

// TestIdenticalRowsAreNoTest: equal rows on all data-parallel ranks are neither a pass nor a difference.
func TestIdenticalRowsAreNoTest(t *testing.T) {
	all := loadExamples(t)
	for _, id := range exampleIDs {
		for _, s := range all[id]["not-a-test"].runs {
			require.Equal(t, "m2", id)
			r := executed(t, s)
			require.Equal(t, "fail", r.Verdict)
			require.Equal(t, "not a test: all data-parallel ranks hold the same rows, so that a missing average would not show", r.Expect[0].Got)
		}
	}
	require.Len(t, all["m2"]["not-a-test"].runs, 1)
}

// at is what an expectation looks at.
func at(e config.Expect) string {
	where := e.Quantity
	for _, p := range []struct {
		name string
		v    *int
	}{{"step", e.Step}, {"microbatch", e.Microbatch}, {"row", e.Row}} {
		if p.v != nil {
			where += fmt.Sprintf(" %s %d", p.name, *p.v)
		}
	}
	return where
}

// headline is the first wrong value that a mutated run expects where its twin expects another: what the page shows. Where
// none is, as with NaN, wrong is nil and right what the twin expects of the first quantity that differs.
func headline(clean, mutated config.Scenario) (right, wrong *config.Expect) {
	for i := range mutated.Expect {
		for j := range clean.Expect {
			w, r := &mutated.Expect[i], &clean.Expect[j]
			if w.Quantity != "" && at(*w) == at(*r) && value(*w) != value(*r) {
				return r, w
			}
		}
	}
	for i := range mutated.Expect {
		for j := range clean.Expect {
			if r := &clean.Expect[j]; mutated.Expect[i].Detected && r.Quantity == mutated.Expect[i].First && value(*r) != "" {
				return r, nil
			}
		}
	}
	return nil, nil
}

// value is what an expectation compares with.
func value(e config.Expect) string {
	fraction := strings.Contains(e.Quantity, "grad")
	switch {
	case e.Equals != nil:
		return values(*e.Equals, fraction)
	case e.Close != nil:
		return values(*e.Close, fraction)
	case e.Above != nil:
		return "infinite"
	}
	return ""
}

func values(v config.Values, fraction bool) string {
	parts := make([]string, len(v.Data))
	for i, x := range v.Data {
		parts[i] = number(x, fraction)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// number is short: as a decimal if it has at most five digits, as a fraction if that is asked for or it must be.
func number(x float64, fraction bool) string {
	s := strconv.FormatFloat(x, 'g', 5, 64)
	if mustFloat(s) == x && (!fraction || x == math.Trunc(x)) {
		return s
	}
	for d := 1.0; d < 1000; d++ {
		if n := math.Round(x * d); math.Abs(n/d-x) < 1e-12 {
			return fmt.Sprintf("%g/%g", n, d)
		}
	}
	return strconv.FormatFloat(x, 'f', 6, 64)
}

func mustFloat(s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return x
}

var source = regexp.MustCompile(`[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+#\d+`)

// sources are the public reports that a text names.
func sources(about string) string {
	found := source.FindAllString(about, -1)
	if strings.Contains(about, "Megatron-LM's pull request") {
		found = append([]string{"Megatron-LM's MTP padding-mask PR"}, found...)
	}
	return strings.Join(found, ", ")
}

// table is docs/examples.md's, from the files alone.
func table(t *testing.T) string {
	all := loadExamples(t)
	var b strings.Builder
	b.WriteString("| id | seen in | what goes wrong | planted bug | first wrong quantity | right | wrong | commands |\n|---|---|---|---|---|---|---|---|\n")
	for _, id := range exampleIDs {
		clean, mutated := all[id]["clean"], all[id]["mutated"]
		s := mutated.runs[0]
		r, w := headline(twin(t, clean, s), s)
		var first, right, wrong string
		for _, e := range s.Expect {
			if e.Detected {
				first, right, wrong = "`"+e.First+"`", "as on one rank", "replicas that differ"
			}
		}
		if r != nil {
			right, wrong = fmt.Sprintf("`%s` %s", at(*r), value(*r)), "NaN"
		}
		if w != nil {
			wrong = value(*w)
		}
		what, _, _ := strings.Cut(s.About, ". ")
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s | %s | %s | `%s`<br>`%s` |\n", strings.ToUpper(id[:1])+id[1:], sources(s.About), what,
			s.Mutate[0], first, right, wrong, clean.command(), mutated.command())
	}
	return b.String()
}

// TestExamplesPage: the table of the page says what the files say.
func TestExamplesPage(t *testing.T) {
	raw, err := os.ReadFile(examplesPage)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(raw), "<!-- examples -->\n")
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, "<!-- end examples -->")
	require.True(t, ok)
	want := head + "<!-- examples -->\n" + table(t) + "<!-- end examples -->" + tail
	if *update {
		require.NoError(t, os.WriteFile(examplesPage, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(raw), "run go test ./run -run TestExample -update")
	for _, s := range loadExamples(t)["m2"]["not-a-test"].runs {
		require.Contains(t, string(raw), s.Name+".yaml")
	}
}

// weights are chosen by hand, so that what a model computes can be derived on paper: every matrix is zero and every norm 1,
// but for what a file sets.
type weights struct {
	h, v int // hidden = ffn = heads · head width, vocabulary
	x    map[string][]float64
}

func newWeights(h, v, depths int) weights {
	w := weights{h, v, map[string][]float64{"model.embed_tokens.weight": make([]float64, v*h), "lm_head.weight": make([]float64, v*h),
		"model.norm.weight": ones(h)}}
	for i := range 1 + depths {
		prefix := fmt.Sprintf("model.layers.%d.", i)
		for _, name := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"} {
			w.x[prefix+name+".weight"] = make([]float64, h*h)
		}
		for _, name := range []string{"input_layernorm", "post_attention_layernorm"} {
			w.x[prefix+name+".weight"] = ones(h)
		}
		if i > 0 {
			for _, name := range []string{"enorm", "hnorm", "shared_head.norm"} {
				w.x[prefix+name+".weight"] = ones(h)
			}
			w.x[prefix+"eh_proj.weight"] = make([]float64, 2*h*h)
		}
	}
	return w
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// row sets the row of a matrix.
func (w weights) row(name string, i int, x ...float64) { copy(w.x[name+".weight"][i*len(x):], x) }

// tokens gives all tokens one embedding, of root mean square 1, so that the norms leave it as it is.
func (w weights) tokens(x ...float64) {
	for v := range w.v {
		w.row("model.embed_tokens", v, x...)
	}
}

func (w weights) tensors() []checkpoint.Tensor {
	var out []checkpoint.Tensor
	for name, x := range w.x {
		shape := []int{len(x)}
		if !strings.Contains(name, "norm") && !strings.HasSuffix(name, "bias") {
			shape = []int{w.h, len(x) / w.h}
			switch {
			case strings.HasPrefix(name, "lm_head"), strings.Contains(name, "embed"):
				shape = []int{w.v, w.h}
			case strings.Contains(name, "mlp.gate."), strings.Contains(name, "gate_proj"), strings.Contains(name, "up_proj"):
				shape = []int{len(x) / w.h, w.h}
			}
		}
		out = append(out, checkpoint.Of(name, x, shape...))
	}
	return out
}

// exampleWeights are the files of scenarios/examples/weights.
func exampleWeights() map[string]weights {
	return map[string]weights{"uniform": uniform(), "uniform-attention": uniformAttention(), "rope-attention": ropeAttention(),
		"norm-gradient": normGradient(), "grad-norm": gradNorm(), "logits": logits(), "router": router(4), "two-experts": twoExperts(),
		"near-tie": nearTie(), "even-router": evenRouter()}
}

// uniform: the state of every token is 1 in the trunk and at depth 1, and the head is 0: its gradient in row v is 1/V − c_v/N.
func uniform() weights {
	w := newWeights(4, 16, 1)
	w.tokens(1, 1, 1, 1)
	for i := range 4 {
		w.x["model.layers.1.eh_proj.weight"][i*8+i] = 1 // the embedding half
	}
	return w
}

// uniformAttention: queries and keys are 0, token 1 has the value 1 and token 2 the value 2. The causal mean of the values
// is feature 3 of the layer's output.
func uniformAttention() weights {
	w := newWeights(4, 16, 0)
	w.row("model.embed_tokens", 1, 2, 0, 0, 0)
	w.row("model.embed_tokens", 2, 0, 2, 0, 0)
	w.row("model.layers.0.self_attn.v_proj", 0, 0.5, 1, 0, 0)
	w.row("model.layers.0.self_attn.o_proj", 3, 1, 0, 0, 0)
	w.head()
	return w
}

// head makes losses differ from ln V.
func (w weights) head() {
	for v := range w.v {
		w.row("lm_head", v, float64(v)/16, -float64(v)/16, 0, float64(v)/8)
	}
}

// ropeAttention: head 0 is two channels wide, one pair that RoPE turns by its position. Every query is (3√2, 0) and every key
// (1, 0) before, so that a score is 3·cos of the difference of angles. Token 1 has the value 1, token 2 has 0; the mean is
// feature 3 of the layer's output.
func ropeAttention() weights {
	w := newWeights(4, 16, 0)
	w.row("model.embed_tokens", 1, 2, 0, 0, 0)
	w.row("model.embed_tokens", 2, 0, 2, 0, 0)
	w.row("model.layers.0.self_attn.q_proj", 0, 1.5*math.Sqrt2, 1.5*math.Sqrt2, 0, 0)
	w.row("model.layers.0.self_attn.k_proj", 0, 0.5, 0.5, 0, 0)
	w.row("model.layers.0.self_attn.v_proj", 0, 0.5, 0, 0, 0)
	w.row("model.layers.0.self_attn.o_proj", 3, 1, 0, 0, 0)
	w.head()
	return w
}

// normGradient: the final norm is 0, so that all logits are 0 and the gradient of its feature 0 is Σ (mean of the head's
// column 0 − its row of the label)/N, which is the sum of the labels 1 to 8 when each comes once.
func normGradient() weights {
	w := newWeights(4, 16, 0)
	w.tokens(1, 1, 1, 1)
	w.x["model.norm.weight"] = make([]float64, 4)
	for v := 1; v <= 8; v++ {
		w.row("lm_head", v, -8*float64(v), 0, 0, 0)
	}
	w.row("lm_head", 0, 8*36, 0, 0, 0)
	return w
}

// gradNorm: features 0 and 1 of the final norm are 8 and meet zeros in the head, whose gradient in row v is
// (1/16 − c_v/16)·8 in both; the others are 0, and the head's columns 2 to 4 give them the gradients 3, 1 and 1.
func gradNorm() weights {
	w := newWeights(8, 16, 0)
	w.tokens(ones(8)...)
	w.x["model.norm.weight"] = []float64{8, 8, 0, 0, 0, 0, 0, 0}
	w.row("lm_head", 9, 0, 0, -48, -16, -16, 0, 0, 0)
	return w
}

// logits: the logits of every token are 0 to 7.
func logits() weights {
	w := newWeights(4, 8, 0)
	w.tokens(2, 0, 0, 0)
	for v := range 8 {
		w.row("lm_head", v, float64(v)/2, 0, 0, 0)
	}
	return w
}

// router: the logit of token e + 1 is 2 for expert e and 0 for the others, e < n; that of token 0 is 5 for expert 0, that of
// token 5 is 5 for expert 2. Attention and experts add nothing. The logit of label v is v/4.
func router(n int) weights {
	const h, f = 16, 2
	w := newWeights(h, 16, 0)
	for name := range w.x {
		if strings.Contains(name, "mlp") {
			delete(w.x, name)
		}
	}
	prefix := "model.layers.0.mlp."
	w.x[prefix+"gate.weight"], w.x[prefix+"gate.e_score_correction_bias"] = make([]float64, n*h), make([]float64, n)
	for e := range n {
		for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			w.x[fmt.Sprintf("%sexperts.%d.%s.weight", prefix, e, name)] = make([]float64, f*h)
		}
		w.at("gate", e, e+1, 2)
	}
	w.at("gate", 0, 0, 5)
	if n > 2 {
		w.at("gate", 2, 5, 5)
	}
	for v := range 16 {
		w.x["model.embed_tokens.weight"][v*h+v] = 4 // one feature, of root mean square 1 over all
		w.row("lm_head", v, slices.Repeat([]float64{float64(v) / 16}, h)...)
	}
	return w
}

// at makes the product of a row of a matrix of the mixture with the embedding of a token x.
func (w weights) at(name string, row, token int, x float64) {
	w.x["model.layers.0.mlp."+name+".weight"][row*w.h+token] = x / 4
}

// twoExperts: as router, and each expert adds to what it gets.
func twoExperts() weights {
	w := router(4)
	for e := range 4 {
		name := fmt.Sprintf("experts.%d.", e)
		for _, v := range []int{1, 2, 3, 4} {
			w.at(name+"gate_proj", 0, v, 1)
			w.at(name+"up_proj", 0, v, 1)
		}
		w.x["model.layers.0.mlp."+name+"down_proj.weight"][0] = 1
	}
	return w
}

// nearTie: two experts; token 3 has the logit 0.002 for expert 0, whose sigmoid is 0.0005 above that of 0 for expert 1.
func nearTie() weights {
	w := router(2)
	w.at("gate", 0, 3, 0.002)
	return w
}

// evenRouter: all logits of the router are 0, and a tie goes to expert 0.
func evenRouter() weights {
	w := router(4)
	clear(w.x["model.layers.0.mlp.gate.weight"])
	return w
}

// TestExampleWeights: the files are the weights derived here, and no other.
func TestExampleWeights(t *testing.T) {
	dir := filepath.Join(examplesDir, "weights")
	scratch := t.TempDir()
	if *update {
		scratch = dir
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	files, err := filepath.Glob(dir + "/*")
	require.NoError(t, err)
	all := exampleWeights()
	for name, w := range all {
		path := filepath.Join(scratch, name+".safetensors")
		require.NoError(t, checkpoint.Write(path, w.tensors(), map[string]string{"format": "pt"}))
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name+".safetensors"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s: run go test ./run -run TestExample -update", name)
	}
	require.True(t, *update || len(files) == len(all), "found %v", files)
}
