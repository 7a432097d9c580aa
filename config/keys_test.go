package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryKeyIsDescribed: each field has one line of doc and a legal spec, and no spec is left without a field.
func TestEveryKeyIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Keys() {
		require.NotNil(t, specs[k.Name], "%s has no spec", k.Name)
		require.Regexp(t, `^[A-Za-z0-9-][^\n]*\.$`, k.Doc, k.Name)
		require.False(t, seen[k.Name], k.Name)
		seen[k.Name] = true
	}
	for key := range specs {
		require.True(t, seen[key], "%s has a spec and no field", key)
	}
	total := len(modelKeys) + len(trainKeys) + len(dataKeys) + len(runKeys) + len(faultKeys) + len(expectKeys)
	require.Len(t, specs, total, "a key stands twice in the tables")
	require.Len(t, Keys(), total)
}

// TestSpecsAreLegal: constant defaults and sources of derived ones make sense.
func TestSpecsAreLegal(t *testing.T) {
	base := Defaults()
	for key, sp := range specs {
		require.Equal(t, key, sp.key)
		for _, from := range sp.from {
			require.True(t, sp.derived(), key)
			require.NotNil(t, specs[from], "%s follows from %s", key, from)
		}
		if sp.legal != nil && sp.constant() {
			require.Contains(t, legalNow(sp), sp.def, key)
		}
		if sp.legal != nil {
			require.NotEmpty(t, legalNow(sp), key)
		}
		if sp.constant() && !strings.Contains(key, "*") {
			got := lookup(&base, key)
			text := fmt.Sprint(got)
			if x, ok := got.(float64); ok {
				text = number(x)
				require.True(t, sp.in == nil || sp.in.has(x), key)
			}
			if f, ok := got.(LayerFreq); ok {
				text = fmt.Sprint(f.Every)
			}
			switch x := got.(type) {
			case Words:
				text = strings.Join(x, " ")
			case Numbers:
				text = number(x.At(0))
			}
			want := map[string]string{"1e-5": "1e-05", "1e-8": "1e-08"}
			if w := want[sp.def]; w != "" {
				require.Equal(t, w, text, key)
				continue
			}
			require.Equal(t, sp.def, text, key)
		}
	}
}

// TestRefusalsAreNeeded: each refusal refuses something that the keys or the specs would otherwise take or not know.
func TestRefusalsAreNeeded(t *testing.T) {
	for _, r := range refusals {
		sp := specs[r.key]
		switch {
		case r.values == nil && !r.list:
			require.Nil(t, sp, "%s has a field now: remove its refusal", r.key)
			require.NotEmpty(t, r.now, r.key)
		case r.list:
			require.NotNil(t, sp, r.key)
			require.NotEmpty(t, r.now, r.key)
		case sp.legal != nil:
			require.True(t, slices.ContainsFunc(sp.legal, r.values), "%s refuses no legal word", r.key)
		case sp.in == nil: // a text
			require.NotEmpty(t, r.now, r.key)
			require.True(t, r.values("without_faults"), "%s refuses no text", r.key)
		default:
			require.NotEmpty(t, r.now, r.key)
			require.True(t, r.values(number(sp.in.high)), "%s refuses no number of its range", r.key)
			require.False(t, r.values(r.now), r.key)
		}
	}
}

// TestMegatronList: the list is in order of sections, has no key twice, and knows the names that we took from Megatron.
func TestMegatronList(t *testing.T) {
	lines := strings.Fields(megatronText)
	require.Greater(t, len(lines), 600)
	require.Len(t, megatronKeys, len(lines), "a key stands twice")
	for _, line := range lines {
		require.Regexp(t, `^[a-z_]+\.[a-zA-Z0-9_]+$`, line)
	}
	ours := []string{"model.loss_normalization", "model.mtp_loss_mask", "model.moe_seq_aux_per_row", "model.moe_drop_padding_tokens", "model.label_smoothing_factor"}
	for _, f := range fieldsOf(reflect.TypeFor[Model]()) {
		key := "model." + f.name
		require.Equal(t, !slices.Contains(ours, key), megatronKeys[key], key)
	}
	for _, f := range fieldsOf(reflect.TypeFor[Optimizer]()) {
		require.True(t, megatronKeys["optimizer."+f.name], f.name)
	}
	for _, f := range fieldsOf(reflect.TypeFor[Scheduler]()) {
		require.True(t, megatronKeys["scheduler."+f.name], f.name)
	}
	for spelling, use := range otherSpellings {
		require.NotNil(t, specs[use], use)
		require.Nil(t, specs[spelling], spelling)
	}
}

func TestKeys(t *testing.T) {
	byName := map[string]KeyInfo{}
	for _, k := range Keys() {
		byName[k.Name] = k
	}
	require.Equal(t, KeyInfo{Name: "model.num_layers", Type: "whole number", Default: "required", Range: "from 1 to 1024", Doc: "Decoder layers.", Megatron: true},
		byName["model.num_layers"])
	require.Equal(t, []string{"aux_loss", "seq_aux_loss", "global_aux_loss", "none"}, byName["model.moe_router_load_balancing_type"].Legal)
	require.False(t, byName["transport.kind"].Megatron)
	for name, typ := range map[string]string{
		"name": "text", "model.moe_layer_freq": "whole number or list of 0 and 1", "model.qk_layernorm": "true or false", "model.moe_router_load_balancing_type": "text or list of texts", "model.moe_aux_loss_coeff": "number or list of numbers",
		"optimizer.lr":  "number",
		"dataset.paths": "list of texts", "dataset.rows": "list of entries", "dataset.rows.*.tokens": "list of whole numbers", "dataset.rows.*.valid": "whole number",
		"dataset.rows.*.answer": "pair of whole numbers", "dataset.rows.*.cu_seqlens": "list of whole numbers", "dataset.packed": "true or false", "rng.seed": "whole number", "transport.embedded": "true or false", "variants.*.set": "dotted keys with values",
		"expect.*.equals": "number, fraction or list of them", "expect.*.between": "list of numbers", "expect.*.below": "number",
		"mutate": "list of texts", "probe": "bias_only or tables of losses", "transport.creds": "text", "expect.*.detected": "true or false",
	} {
		require.Equal(t, typ, byName[name].Type, name)
	}
	require.Equal(t, "name", Keys()[0].Name)
}

func TestBounds(t *testing.T) {
	for _, c := range []struct {
		in      *bounds
		text    string
		yes, no []float64
	}{
		{between(1, 3), "from 1 to 3", []float64{1, 2, 3}, []float64{0, 4, math.NaN()}},
		{atLeast(0), "of at least 0", []float64{0, 1e300}, []float64{-1e-300}},
		{above(0), "above 0", []float64{1e-300}, []float64{0, -1}},
		{share(), "from 0 to below 1", []float64{0, 0.999}, []float64{1, -0.1}},
		{&bounds{high: 5, lowOpen: true}, "above 0 and at most 5", []float64{0.1, 5}, []float64{0, 5.1}},
	} {
		require.Equal(t, c.text, c.in.String())
		for _, x := range c.yes {
			require.True(t, c.in.has(x), "%v in %v", x, c.in)
		}
		for _, x := range c.no {
			require.False(t, c.in.has(x), "%v in %v", x, c.in)
		}
	}
}
