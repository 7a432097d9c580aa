package mesh_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"phalanx/mesh"
)

// SEMANTICS §1.6: p 4, VPP 2.
func TestLayoutText(t *testing.T) {
	l, err := mesh.ParseLayout("E|t*3|(t|)*3tt|m|L", 4, mesh.Stack{Layers: 8, Depths: 1})
	require.NoError(t, err)
	require.Equal(t, mesh.Layout{PP: 4, VPP: 2, Chunks: []mesh.Chunk{
		{Embedding: true}, {Layers: []int{0, 1, 2}}, {Layers: []int{3}}, {Layers: []int{4}},
		{Layers: []int{5}}, {Layers: []int{6, 7}}, {Depths: []int{1}}, {Loss: true}}}, l)
	require.Equal(t, "E|ttt|t|t|t|tt|m|L", l.String())
	require.Equal(t, []int{2, 1, 6}, []int{l.Rank(6), l.Virtual(6), l.Chunk(2, 1)})
	require.True(t, l.Standalone())
	require.False(t, l.Spread())
	require.Equal(t, []int{1, 1, 1, 1, 1, 1, 2, 2}, hidden(l))
}

func hidden(l mesh.Layout) []int {
	n := make([]int, len(l.Chunks))
	for j := range n {
		n[j] = l.Hidden(j)
	}
	return n
}

func TestLayoutTextForms(t *testing.T) {
	for text, want := range map[string]string{
		"Ett|ttL":            "Ett|ttL",
		"E,t*2, | t * 2,L":   "Ett|ttL",
		"E((t*2)|)*1(tt)*1L": "Ett|ttL",
		"E|*1t*4L":           "E|ttttL",
		"Etttt||||*1L":       "Etttt||||L", // empty chunks hand rows on
	} {
		l, err := mesh.ParseLayout(text, 1, mesh.Stack{Layers: 4})
		require.NoError(t, err, text)
		require.Equal(t, want, l.String(), text)
		require.Equal(t, len(l.Chunks), l.VPP)
	}
}

// Depths one by one in chunks in sequence are legal here; Megatron has them in one chunk.
func TestDepthsOnStagesOfTheirOwn(t *testing.T) {
	stack := mesh.Stack{Layers: 2, Depths: 3}
	l, err := mesh.ParseLayout("Ett|m|m|mL", 4, stack)
	require.NoError(t, err)
	require.True(t, l.Spread())
	require.Equal(t, []int{1, 2, 3, 4}, hidden(l))
	stack.Repeated = true
	_, err = mesh.ParseLayout("Ett|m|m|mL", 4, stack)
	require.EqualError(t, err, "character 7: mtp_use_repeated_layer has one layer for all depths; expected all m in one chunk")
	_, err = mesh.ParseLayout("Ett|mmm|L|", 4, stack)
	require.EqualError(t, err, "character 9: found L; expected L exactly once, as the last letter")
}

func TestLayoutErrors(t *testing.T) {
	stack := mesh.Stack{Layers: 4, Depths: 2}
	for text, want := range map[string]string{
		"":                  "character 1: is empty",
		"Ett|ttmmx":         `character 9: found "x"; expected E`,
		"Ett|ttßmmL":        `character 7: found "ß"; expected E`,
		"tEtt|tmmL":         "character 1: found t; expected E exactly once, as the first",
		"EtEt|ttmmL":        "character 3: found E; expected E exactly once, as the first",
		"EttL|ttmmL":        "character 4: found L; expected L exactly once, as the last",
		"Ett|ttmm":          "character 8: found m; expected L exactly once, as the last",
		"Ett|tmmL":          "character 9: has 3 letters t, expected num_layers = 4",
		"Et*2|t*3mmL":       "character 6: found one t more than num_layers = 4",
		"Ett|ttmL":          "character 9: has 1 letters m, expected mtp_num_layers = 2",
		"Ett|ttmmmL":        "character 9: found one m more than mtp_num_layers = 2",
		"Ettm|ttmL":         "character 6: found t after an m",
		"Ett|tt|mmL":        "character 11: has 3 chunks, expected a multiple of pipeline_model_parallel_size 2",
		"Ett|tt|||m|mL|":    "character 13: found L; expected L",
		"Etttt|mm|t|L":      "character 10: found t after an m",
		"Etttt|mm||L":       "character 7: MTP depth in chunk 1, which is virtual chunk 0 of rank 1; expected the last virtual chunk, 1, of a rank",
		"Ett|(tt":           "character 5: ( is never closed",
		"Ett|tt)L":          "character 7: found ) without a (",
		"*2Ett":             "character 1: found * with nothing before it",
		"Et*|L":             "character 4: expected how often, from 1, after *",
		"Et*0|L":            "character 4: expected how often, from 1, after *",
		"Et*99999|L":        "character 4: repeats more than 16384 times",
		"E((t*99)*99)*99|L": "character 2: makes more than 16384 items",
	} {
		_, err := mesh.ParseLayout(text, 2, stack)
		require.ErrorContains(t, err, want, text)
		var at *mesh.LayoutError
		require.True(t, errors.As(err, &at))
	}
	_, err := mesh.ParseLayout(strings.Repeat("(", 5000), 2, stack)
	require.ErrorContains(t, err, "expected at most 4096")
	_, err = mesh.ParseLayout("Etttt|mm|m|L", 2, mesh.Stack{Layers: 4, Depths: 3})
	require.ErrorContains(t, err, "character 7: chunk 1 has 2 of the 3 MTP depths; expected all in one chunk, or one each")
	_, err = mesh.ParseLayout("Ettttm||mL", 3, stack)
	require.ErrorContains(t, err, "character 9: MTP depth 2 is in chunk 2, depth 1 in chunk 0; expected chunks in sequence")
}

func TestEvenLayouts(t *testing.T) {
	for want, c := range map[string]struct {
		pp, vpp, layers, depths int
		split                   mesh.Split
	}{
		"Ett|tt|tt|ttmL":    {pp: 4, vpp: 1, layers: 8, depths: 1},
		"Et|t|t|t|t|t|t|tL": {pp: 4, vpp: 2, layers: 8},
		"Et|ttt|ttt|tL":     {pp: 4, vpp: 1, layers: 8, split: mesh.Split{First: 1, Last: 1}},
		"Ett|ttt|tttL":      {pp: 3, vpp: 1, layers: 8, split: mesh.Split{First: 2}},
		"Et|tttmmL":         {pp: 2, vpp: 1, layers: 4, depths: 2, split: mesh.Split{First: 1, Last: 3}},
		"Et|tt|tL":          {pp: 3, vpp: 1, layers: 4, split: mesh.Split{Embedding: true, Loss: true}},
		"EtttmL":            {pp: 1, vpp: 1, layers: 3, depths: 1},
	} {
		l, err := mesh.Even(c.pp, c.vpp, mesh.Stack{Layers: c.layers, Depths: c.depths}, c.split)
		require.NoError(t, err)
		require.Equal(t, want, l.String())
		again, err := mesh.ParseLayout(l.String(), c.pp, mesh.Stack{Layers: c.layers, Depths: c.depths})
		require.NoError(t, err)
		require.Equal(t, l, again)
	}
}

func TestUnevenLayouts(t *testing.T) {
	for want, c := range map[string]struct {
		pp, vpp, layers int
		split           mesh.Split
	}{
		"num_layers 6 is not divisible by 4 stages":                                            {pp: 4, vpp: 1, layers: 6},
		"2 virtual chunks do not divide the layers of stage 0, which are 3":                    {pp: 2, vpp: 2, layers: 6},
		"num_layers 6 − 1 of the first stage = 5 is not divisible by 3 stages":                 {pp: 4, vpp: 1, layers: 6, split: mesh.Split{First: 1}},
		"num_layers 6 − 3 of the first stage − 4 of the last stage = -1 cannot be divided":     {pp: 4, vpp: 1, layers: 6, split: mesh.Split{First: 3, Last: 4}},
		"num_layers 6 − 3 of the first stage − 2 of the last stage = 1 cannot be divided over": {pp: 2, vpp: 1, layers: 6, split: mesh.Split{First: 3, Last: 2}},
		"num_layers 6 + 1 for the embedding = 7 is not divisible by 2 stages":                  {pp: 2, vpp: 1, layers: 6, split: mesh.Split{Embedding: true}},
	} {
		_, err := mesh.Even(c.pp, c.vpp, mesh.Stack{Layers: c.layers}, c.split)
		require.ErrorContains(t, err, want)
	}
}

// Whatever the text, there is a layout or an error with a place inside the text, and every layer and depth lies once.
func TestAnyLayoutText(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := "E" + rapid.StringOfN(rapid.RuneFrom([]rune("tm|()*2, 3t|t")), 0, 12, -1).Draw(r, "text") + "L"
		stack := mesh.Stack{Layers: strings.Count(text, "t"), Depths: strings.Count(text, "m")}
		pp := rapid.IntRange(1, 3).Draw(r, "pp")
		l, err := mesh.ParseLayout(text, pp, stack)
		if err != nil {
			var at *mesh.LayoutError
			require.True(r, errors.As(err, &at))
			require.True(r, at.At >= 1 && at.At <= len(text)+1, "%d in %q", at.At, text)
			return
		}
		require.Equal(r, pp*l.VPP, len(l.Chunks))
		layers, depths := 0, 0
		for j, c := range l.Chunks {
			for _, i := range c.Layers {
				require.Equal(r, layers, i)
				layers++
			}
			for _, k := range c.Depths {
				depths++
				require.Equal(r, depths, k)
			}
			require.Equal(r, j, l.Chunk(l.Rank(j), l.Virtual(j)))
		}
		require.Equal(r, stack.Layers, layers)
		require.Equal(r, stack.Depths, depths)
		again, err := mesh.ParseLayout(l.String(), pp, stack)
		require.NoError(r, err)
		require.Equal(r, l, again)
	})
}
