package golden_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/checkpoint"
	"phalanx/internal/golden"
	"phalanx/nn"
)

func load(t *testing.T, name string) *golden.Case {
	t.Helper()
	dir, err := golden.Dir()
	require.NoError(t, err)
	c, err := golden.Load(filepath.Join(dir, name+".json"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// ints widens, to compare with a case.
func ints(x []int32) []int64 {
	out := make([]int64, len(x))
	for i, v := range x {
		out[i] = int64(v)
	}
	return out
}

// TestEveryCase reads every case, and holds the rolls of nn against what an independent implementation says each
// depth sees.
func TestEveryCase(t *testing.T) {
	dir, err := golden.Dir()
	require.NoError(t, err)
	names, err := golden.Cases(dir)
	require.NoError(t, err)
	require.Len(t, names, 25)
	require.IsIncreasing(t, names)
	for _, name := range names {
		c := load(t, name)
		require.Equal(t, name, c.Name)
		require.NotEmpty(t, c.About)
		require.IsType(t, 0, c.Config["num_layers"])
		require.IsType(t, 0.0, c.Config["layernorm_epsilon"])
		require.IsType(t, 0.0, c.Config["rotary_base"])
		require.InDelta(t, 0.9, c.Optimizer["adam_beta1"], 0)
		for _, p := range c.ParamNames() {
			_, err := c.FinalParam(p)
			require.NoError(t, err, "%s %s", name, p)
		}
		for i, step := range c.Steps {
			for j := range step.Microbatches {
				checkMicrobatch(t, c, i, j)
			}
		}
	}
}

func checkMicrobatch(t *testing.T, c *golden.Case, step, mb int) {
	t.Helper()
	m, err := c.Microbatch(step, mb)
	require.NoError(t, err)
	require.Len(t, m.IDs, m.B*m.S)
	require.Equal(t, c.HasPadMask(), m.Pad != nil)
	require.Equal(t, c.HasLossMask(), !m.Loss.AllOnes)
	f := nn.NewFrames(m.Docs, m.B, m.S, 1, 1)[0]
	ids, labels, loss, valid := m.IDs, m.Labels, m.Loss, m.Pad.Validity()
	for k, want := range c.Steps[step].Microbatches[mb].MTPTokens {
		ids, labels = nn.RollWhole(f, ids), nn.RollWhole(f, labels)
		loss, valid = loss.RollWhole(f), valid.RollWhole(f)
		require.Equal(t, want, loss.Count(), "%s step %d mb %d depth %d", c.Name, step, mb, k+1)
		if step > 0 {
			continue
		}
		depth := fmt.Sprintf("mtp%d/", k+1)
		wantIDs, err := c.ExpectInts(mb, depth+"input_ids")
		require.NoError(t, err)
		require.Equal(t, wantIDs.Data, ints(ids))
		wantLabels, err := c.ExpectInts(mb, depth+"labels")
		require.NoError(t, err)
		require.Equal(t, wantLabels.Data, ints(labels))
		wantLoss, err := c.ExpectFloats(mb, depth+"loss_mask")
		require.NoError(t, err)
		for i, w := range wantLoss.Data {
			require.EqualValues(t, w, loss.Weight[i])
		}
		if valid != nil {
			wantPad, err := c.ExpectBools(mb, depth+"padding_mask")
			require.NoError(t, err)
			require.Equal(t, wantPad.Data, valid.PadMask().Pad)
		}
	}
}

func TestCaseValues(t *testing.T) {
	c := load(t, "moe-mtp")
	require.Len(t, c.Steps, 3)
	require.InDelta(t, 4.056136354310158, c.Steps[0].Objective, 0)
	require.InDelta(t, 1.7957239461643364, c.Steps[0].GradNorm, 0)
	mb := c.Steps[0].Microbatches[0]
	require.EqualValues(t, 27, mb.LMTokens)
	require.Equal(t, []int64{25, 23}, mb.MTPTokens)
	require.InDelta(t, 1.111041224288169, mb.Aux["aux_loss"][0], 0)
	require.Equal(t, []int64{10, 7, 16, 17}, mb.TokensPerExpert[2])
	require.Equal(t, 1, c.DataParallelSize)
	require.Nil(t, load(t, "moe-repeated").Config["moe_z_loss_coeff"])

	b, s := c.BatchShape()
	require.Equal(t, []int{2, 16}, []int{b, s})
	m, err := c.Microbatch(0, 0)
	require.NoError(t, err)
	require.Equal(t, []int32{14, 29, 9, 3}, m.IDs[:4])
	require.Equal(t, []int32{29, 9, 3, 7}, m.Labels[:4])
	require.Equal(t, []int32{0, 1, 2, 3}, m.Positions[16:20])
	for i := range 16 { // row 1 has 11 tokens and 11 labels
		require.Equal(t, i >= 11, m.Pad.Pad[16+i])
		require.Equal(t, i < 11, m.Loss.At(1, i) == 1)
	}

	require.Contains(t, c.ParamNames(), "model.embed_tokens.weight")
	require.Contains(t, c.GradNames(), "model.embed_tokens.weight")
	require.Contains(t, c.ExpectNames(0), "router0/routing_map")
	e, err := c.Param("model.embed_tokens.weight")
	require.NoError(t, err)
	require.Equal(t, []int{32, 16}, e.Shape)
	g, err := c.Grad("model.embed_tokens.weight")
	require.NoError(t, err)
	require.Len(t, g.Data, 512)
	logits, err := c.ExpectFloats(0, "router0/logits")
	require.NoError(t, err)
	require.Equal(t, []int{32, 4}, logits.Shape)
	_, ok := c.Info("step0/mb0/expect/lm_logits")
	require.True(t, ok)
}

func TestPackedAndEmbeddings(t *testing.T) {
	m, err := load(t, "moe-packed-padded").Microbatch(0, 0)
	require.NoError(t, err)
	require.Equal(t, nn.Docs{{{Start: 0, Logical: 5, Physical: 8}, {Start: 8, Logical: 7, Physical: 8}, {Start: 16, Logical: 1, Physical: 4}}}, m.Docs)
	m, err = load(t, "moe-embeddings").Microbatch(0, 0)
	require.NoError(t, err)
	require.Len(t, m.Embeddings, 2*16*16)
}

func TestMissing(t *testing.T) {
	c := load(t, "dense")
	var ge *golden.Error
	_, err := c.Microbatch(3, 0)
	require.ErrorAs(t, err, &ge)
	require.ErrorContains(t, err, "no step 3 microbatch 0: the case has 3 steps of 2 microbatches")
	_, err = c.Param("model.embed_token.weight")
	require.ErrorAs(t, err, &ge)
	require.ErrorIs(t, err, checkpoint.ErrNoTensor)
	require.ErrorContains(t, err, `nearest name: "params/model.embed_tokens.weight"`)
	_, err = golden.Load("case.safetensors")
	require.ErrorContains(t, err, "named by its .json file")
	_, err = golden.Load("nowhere.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "nowhere.json: no such file or directory")
	_, err = golden.Cases("nowhere")
	require.ErrorAs(t, err, &ge)
}

// small is a case by hand: one step, one microbatch of one row [1, 3], one weight.
const small = `{"name":"small","about":"by hand","config":{"num_layers":1,"x":[1,2.5]},"optimizer":{"lr":0.5},"data_parallel_size":1,
"steps":[{"objective":1,"grad_norm":2,"microbatches":[{"cu_seqlens":null,"cu_seqlens_padded":null,"lm_loss_sum":3.5,"lm_tokens":2.0,
"mtp_loss_sum":[],"mtp_tokens":[],"aux":{"z_loss":{"0":1.5}},"tokens_per_expert":{"0":[1,1]}}]}]}`

func smallTensors() []checkpoint.Tensor {
	return []checkpoint.Tensor{
		checkpoint.Of("params/w", []float64{1, 2}, 2), checkpoint.Of("final/expect/params/w", []float64{3, 4}, 2),
		checkpoint.Of("step0/mb0/input_ids", []int64{1, 2, 3}, 1, 3), checkpoint.Of("step0/mb0/labels", []int64{2, 3, 0}, 1, 3),
		checkpoint.Of("step0/mb0/position_ids", []int64{0, 1, 2}, 1, 3), checkpoint.Of("step0/mb0/loss_mask", []float64{1, 1, 0}, 1, 3),
		checkpoint.OfBools("step0/mb0/padding_mask", []bool{false, false, true}, 1, 3),
	}
}

func loadSmall(t *testing.T, json string, tensors []checkpoint.Tensor) (*golden.Case, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.json")
	require.NoError(t, os.WriteFile(path, []byte(json), 0o600))
	if tensors != nil {
		require.NoError(t, checkpoint.Write(strings.TrimSuffix(path, "json")+"safetensors", tensors, nil))
	}
	c, err := golden.Load(path)
	if c != nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestSmallCase(t *testing.T) {
	c, err := loadSmall(t, small, smallTensors())
	require.NoError(t, err)
	require.Equal(t, []any{1, 2.5}, c.Config["x"])
	m, err := c.Microbatch(0, 0)
	require.NoError(t, err)
	require.Equal(t, &nn.Microbatch{B: 1, S: 3, IDs: []int32{1, 2, 3}, Labels: []int32{2, 3, 0}, Positions: []int32{0, 1, 2},
		Loss: &nn.LossMask{B: 1, S: 3, Weight: []float32{1, 1, 0}}, Pad: &nn.PadMask{B: 1, S: 3, Pad: []bool{false, false, true}}}, m)
}

func TestBrokenJSON(t *testing.T) {
	r := func(old, with string) string { return strings.Replace(small, old, with, 1) }
	for want, json := range map[string]string{
		"not the JSON of a reference case: unexpected EOF":                               small[:100],
		`not the JSON of a reference case: json: unknown field "objectives"`:             r(`"objective"`, `"objectives"`),
		"not the JSON of a reference case: something follows the JSON object":            small + "{}",
		`found name "", 1 steps, data_parallel_size 1; expected a name`:                  r(`"small"`, `""`),
		`found name "small", 1 steps, data_parallel_size 0; expected`:                    r(`"data_parallel_size":1`, `"data_parallel_size":0`),
		"config: expected an object of keys and values":                                  r(`{"num_layers":1,"x":[1,2.5]}`, `7`),
		"optimizer: expected an object of keys and values":                               r(`"optimizer":{"lr":0.5},`, ``),
		"step 0: expected objective, grad_norm and at least one microbatch":              r(`"objective":1,`, ``),
		"step 0 microbatch 0: expected lm_loss_sum, lm_tokens, and mtp_loss_sum as long": r(`"mtp_tokens":[]`, `"mtp_tokens":[1]`),
		`step 0 microbatch 0: aux.z_loss: found layer "a", expected a number`:            r(`"z_loss":{"0"`, `"z_loss":{"a"`),
		`step 0 microbatch 0: tokens_per_expert: found layer "b", expected a number`:     r(`"tokens_per_expert":{"0"`, `"tokens_per_expert":{"b"`),
	} {
		_, err := loadSmall(t, json, smallTensors())
		var ge *golden.Error
		require.ErrorAs(t, err, &ge, want)
		require.ErrorContains(t, err, want)
	}
	_, err := loadSmall(t, strings.Repeat(" ", 16<<20)+small, nil)
	require.ErrorContains(t, err, "found more than 16777216 bytes")
	_, err = loadSmall(t, small, nil)
	require.ErrorContains(t, err, "its tensors: ")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestBrokenTensors(t *testing.T) {
	steps := strings.Replace(small, `"steps":[`, `"steps":[`+stepOf(small)+`,`, 1)
	for _, c := range []struct {
		want, json string
		tensors    []checkpoint.Tensor
	}{
		{"found no tensor params/…", small, without("params/w", "final/expect/params/w")},
		{"final/expect/params/w: found shape [2], expected that of params/w, [1 2]", small, with(checkpoint.Of("params/w", []float64{1, 2}, 1, 2))},
		{"found no step0/mb0/input_ids of shape [b, s]", small, without("step0/mb0/input_ids")},
		{"found no step0/mb0/input_ids of shape [b, s]", small, with(checkpoint.Of("step0/mb0/input_ids", []int64{1, 2, 3}, 3))},
		{"found no tensor step0/mb0/labels", small, without("step0/mb0/labels")},
		{"step0/mb0/loss_mask: found shape [1 2], expected [1 3]", small, with(checkpoint.Of("step0/mb0/loss_mask", []float64{1, 1}, 1, 2))},
		{"found no tensor step1/mb0/input_ids", steps, smallTensors()},
		{"found loss_mask in some microbatches only, expected it in all or none (differs at step 1 microbatch 0)", steps,
			append(smallTensors(), checkpoint.Of("step1/mb0/input_ids", []int64{1, 2, 3}, 1, 3), checkpoint.Of("step1/mb0/labels", []int64{1, 2, 3}, 1, 3),
				checkpoint.Of("step1/mb0/position_ids", []int64{1, 2, 3}, 1, 3))},
	} {
		_, err := loadSmall(t, c.json, c.tensors)
		var ge *golden.Error
		require.ErrorAs(t, err, &ge, c.want)
		require.ErrorContains(t, err, c.want)
	}
}

// without is the small case's tensors but some.
func without(names ...string) []checkpoint.Tensor {
	return slices.DeleteFunc(smallTensors(), func(x checkpoint.Tensor) bool { return slices.Contains(names, x.Name) })
}

// with is the small case's tensors with one replaced.
func with(x checkpoint.Tensor) []checkpoint.Tensor { return append(without(x.Name), x) }

// stepOf is the one step of the small case.
func stepOf(json string) string {
	_, rest, _ := strings.Cut(json, `"steps":[`)
	return strings.TrimSuffix(rest, "]}")
}

func TestUnequalSteps(t *testing.T) {
	step := stepOf(small)
	two := strings.Replace(step, `"microbatches":[`, `"microbatches":[`+strings.TrimSuffix(strings.SplitN(step, `"microbatches":[`, 2)[1], "]}")+",", 1)
	_, err := loadSmall(t, strings.Replace(small, `"steps":[`, `"steps":[`+two+",", 1), smallTensors())
	require.ErrorContains(t, err, "found no tensor step0/mb1/input_ids")
	_, err = loadSmall(t, strings.Replace(small, step, step+","+two, 1), smallTensors())
	require.ErrorContains(t, err, "step 1: found 2 microbatches, expected 1 as in step 0")
	deeper := strings.Replace(strings.Replace(step, `"mtp_tokens":[]`, `"mtp_tokens":[1]`, 1), `"mtp_loss_sum":[]`, `"mtp_loss_sum":[1]`, 1)
	_, err = loadSmall(t, strings.Replace(small, step, step+","+deeper, 1), smallTensors())
	require.ErrorContains(t, err, "step 1 microbatch 0: found 1 MTP losses, expected 0")
}

func TestBrokenBatches(t *testing.T) {
	for want, x := range map[string]checkpoint.Tensor{
		"the loss mask counts 3 labels, lm_tokens says 2: the .json and the .safetensors do not belong together": checkpoint.Of("step0/mb0/loss_mask", []float64{1, 1, 1}, 1, 3),
		"step0/mb0/loss_mask: found weight 0.5 at element 0, expected 0 or 1":                                    checkpoint.Of("step0/mb0/loss_mask", []float64{0.5, 1, 1}, 1, 3),
		"step0/mb0/labels: found -100 at element 1, expected an id from 0 to 2^31-1":                             checkpoint.Of("step0/mb0/labels", []int64{1, -100, 1}, 1, 3),
		"step0/mb0/input_ids: found 4294967296 at element 0":                                                     checkpoint.Of("step0/mb0/input_ids", []int64{1 << 32, 1, 1}, 1, 3),
		`tensor "step0/mb0/position_ids": found F64, expected I64`:                                               checkpoint.Of("step0/mb0/position_ids", []float64{1, 1, 1}, 1, 3),
		`tensor "step0/mb0/padding_mask": found I64, expected BOOL`:                                              checkpoint.Of("step0/mb0/padding_mask", []int64{1, 1, 1}, 1, 3),
		`tensor "step0/mb0/loss_mask": found I64, expected F64`:                                                  checkpoint.Of("step0/mb0/loss_mask", []int64{1, 1, 1}, 1, 3),
	} {
		c, err := loadSmall(t, small, with(x))
		require.NoError(t, err)
		_, err = c.Microbatch(0, 0)
		var ge *golden.Error
		require.ErrorAs(t, err, &ge, want)
		require.ErrorContains(t, err, want)
	}
}

func TestTruncatedTensors(t *testing.T) {
	dir, err := golden.Dir()
	require.NoError(t, err)
	at := t.TempDir()
	for _, ext := range []string{".json", ".safetensors"} {
		b, err := os.ReadFile(filepath.Join(dir, "dense"+ext))
		require.NoError(t, err)
		if ext == ".safetensors" {
			b = b[:len(b)-1]
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, "dense"+ext), b, 0o600))
	}
	_, err = golden.Load(filepath.Join(at, "dense.json"))
	require.ErrorIs(t, err, checkpoint.ErrTruncated)
}
