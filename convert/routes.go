package convert

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"phalanx/checkpoint"
	"phalanx/config"
)

// route says where the elements of a tensor to write come from: count elements of a source tensor from element from on.
// Without a source they are zero.
type route struct {
	Param
	source string
	dtype  string // of the source
	from   int64
	count  int64
}

// Left is a tensor of the source that is not written, and why.
type Left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// duplicate is a tensor that must equal another one and is then left out.
type duplicate struct{ name, of string }

// router finds the sources of a model's tensors, and accounts for every tensor of the source.
type router struct {
	t     Tensors
	where string // the source, for messages
	m     *config.Model
	used  map[string]bool

	routes     []route
	duplicates []duplicate
	left       []Left
	problems   Problems
}

// find routes every parameter, then accounts for what is left over.
func (r *router) find(params []Param, dropMTP bool) {
	for _, p := range params {
		r.param(p)
	}
	r.findDuplicates()
	if dropMTP {
		r.dropDepths()
	}
	for _, name := range r.t.Names() {
		if r.used[name] {
			continue
		}
		if strings.HasSuffix(name, "rotary_emb.inv_freq") {
			r.left = append(r.left, Left{name, "follows from rotary_base"})
			continue
		}
		i, _ := r.t.Info(name)
		r.fail(name, "unexpected: %s %v is no tensor of the model that config.json describes%s", i.DType, i.Shape, r.reason(name))
	}
}

func (r *router) fail(name, format string, args ...any) {
	r.problems = append(r.problems, Problem{Where: r.where, Name: name, Text: fmt.Sprintf(format, args...)})
}

// param routes one parameter: a tensor of its name and shape, or its part of the tensor that fuses all experts.
func (r *router) param(p Param) {
	i, ok := r.t.Info(p.Name)
	if !ok {
		if !r.fused(p) {
			r.fail(p.Name, "missing: expected a tensor of shape %v%s", p.Shape, r.missingTip(p.Name))
		}
		return
	}
	r.used[p.Name] = true
	if slices.Equal(i.Shape, p.Shape) {
		r.add(p, i, 0)
		return
	}
	r.fail(p.Name, "found shape %v, expected %v", i.Shape, p.Shape)
}

func (r *router) add(p Param, i checkpoint.Info, from int64) {
	if widths[i.DType] == 0 {
		r.fail(i.Name, "found elements of %s, expected F32, BF16, F16 or F64: %s", i.DType, quantReason)
		return
	}
	n := int64(1)
	for _, d := range p.Shape {
		n *= int64(d)
	}
	r.routes = append(r.routes, route{Param: p, source: i.Name, dtype: i.DType, from: from, count: n})
}

var expertName = regexp.MustCompile(`^(.*\.mlp\.experts\.)(\d+)\.(gate|up|down)_proj\.weight$`)

// fused routes an expert's matrix to its part of the tensors of all experts: gate_up_proj [E, 2F, H], each expert's gate
// rows before its up rows, and down_proj [E, H, F].
func (r *router) fused(p Param) bool {
	parts := expertName.FindStringSubmatch(p.Name)
	if parts == nil || !r.m.GatedLinearUnit {
		return false
	}
	name, rows, at := parts[1]+"down_proj", 1, 0
	if parts[3] != "down" {
		name, rows = parts[1]+"gate_up_proj", 2
	}
	if parts[3] == "up" {
		at = 1
	}
	i, ok := r.t.Info(name)
	if !ok {
		return false
	}
	r.used[name] = true
	want := []int{r.m.NumMoEExperts, rows * p.Shape[0], p.Shape[1]}
	e := 0
	fmt.Sscan(parts[2], &e) // digits
	switch {
	case slices.Equal(i.Shape, want):
		r.add(p, i, int64(e*rows+at)*int64(p.Shape[0])*int64(p.Shape[1]))
	case e == 0 && at == 0:
		r.fail(name, "found shape %v, expected %v: [experts, outputs, inputs]", i.Shape, want)
	}
	return true
}

// findDuplicates names tensors that say again what another one says: each MTP layer brings the embedding and the head,
// and a tied model may bring its head.
func (r *router) findDuplicates() {
	add := func(name, of string) {
		if _, ok := r.t.Info(name); ok {
			r.used[name] = true
			r.duplicates = append(r.duplicates, duplicate{name, of})
		}
	}
	if !r.m.UntieEmbeddings {
		add("lm_head.weight", headName(r.m))
	}
	for k := range storedDepths(r.m) {
		for _, d := range depthCopies(r.m, k) {
			add(d.name, d.of)
		}
	}
}

// depthCopies are the copies that MTP layer k of a published model holds of the embedding and the head.
func depthCopies(m *config.Model, k int) []duplicate {
	p := layerName(m.NumLayers + k)
	return []duplicate{{p + "embed_tokens.weight", "model.embed_tokens.weight"}, {p + "shared_head.head.weight", headName(m)}}
}

var layerNumber = regexp.MustCompile(`^model\.layers\.(\d+)\.`)

// dropDepths leaves out every tensor of layers behind the decoder's.
func (r *router) dropDepths() {
	for _, name := range r.t.Names() {
		if r.used[name] || !r.isDepth(name) {
			continue
		}
		r.used[name] = true
		r.left = append(r.left, Left{name, "--drop-mtp"})
	}
}

func (r *router) isDepth(name string) bool {
	n := -1
	if parts := layerNumber.FindStringSubmatch(name); parts != nil && len(parts[1]) < 9 {
		fmt.Sscan(parts[1], &n) // digits
	}
	return n >= r.m.NumLayers || strings.HasPrefix(name, "mtp.")
}

// missingTip helps with the tensors that are most often not there.
func (r *router) missingTip(name string) string {
	switch {
	case r.isDepth(name):
		return "; the file has no such MTP layer, --drop-mtp converts the model without"
	case name == "lm_head.weight":
		return "; tie_word_embeddings is false"
	}
	return ""
}

// reasons are parts of names that tell what a model is that this version cannot take.
var reasons = []struct{ part, why string }{
	{"kv_a_proj_with_mqa", mlaReason}, {"q_a_proj", mlaReason}, {"q_b_proj", mlaReason}, {"kv_b_proj", mlaReason}, {"_a_layernorm", mlaReason},
	{"weight_scale", quantReason}, {"qweight", quantReason}, {"qzeros", quantReason}, {".scales", quantReason}, {"g_idx", quantReason},
	{"input_scale", quantReason}, {"linear_attn", hybridReason}, {"conv1d", hybridReason}, {"A_log", hybridReason}, {"mixer.", hybridReason},
	{"sinks", "attention sinks are not in this version"}, {"lora_", "low-rank adapters are not in this version"},
	{"norm.bias", "norms have no bias in this version"}, {"o_proj.bias", "the output projection has no bias in this version"},
	{"visual.", "pictures are not in this version"}, {"vision", "pictures are not in this version"},
}

// reason says why a tensor may be there.
func (r *router) reason(name string) string {
	for _, x := range reasons {
		if strings.Contains(name, x.part) {
			return ": " + x.why
		}
	}
	if r.isDepth(name) {
		return fmt.Sprintf(": it belongs to an MTP layer, and config.json says %d; --drop-mtp converts the model without", r.m.MTPNumLayers)
	}
	return ""
}

// sortedKeys are the keys of a map, ascending.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
