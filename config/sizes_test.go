package config

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"phalanx/mesh"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	s := parsed(t, edited(t, "optimizer:\n", "dist: {world_size: 6}\noptimizer:\n", "micro_batch_size: 2", "micro_batch_size: 2\n  global_batch_size: 24",
		"mtp_num_layers: 2", "mtp_num_layers: 2\n  tensor_model_parallel_size: 2"))
	require.Equal(t, mesh.Sizes{TP: 2, CP: 1, DP: 3, PP: 1, EP: 1, ETP: 1}, s.Sizes())
	require.Equal(t, 6, s.Sizes().World())
	require.Equal(t, 3, s.DataParallel())
	require.Equal(t, 4, s.NumMicrobatches())

	s.Dist.WorldSize = 5
	require.Zero(t, s.DataParallel())
	require.Zero(t, s.NumMicrobatches())
	require.Zero(t, new(Scenario).NumMicrobatches())
}

func TestUsesEmbedded(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		transport Transport
		want      bool
	}{
		{Transport{Kind: "nats"}, true}, {Transport{Kind: "nats", URL: "nats://h:1"}, false}, {Transport{Kind: "direct"}, false},
		{Transport{Kind: "nats", Embedded: &yes}, true}, {Transport{Kind: "nats", Embedded: &no, URL: "nats://h:1"}, false},
	} {
		require.Equal(t, c.want, c.transport.UsesEmbedded())
	}
}

// TestParameters: the count is that of the weights of the reference cases.
func TestParameters(t *testing.T) {
	files, err := filepath.Glob(casesDir + "/*.json")
	require.NoError(t, err)
	checked := 0
	for _, file := range files {
		c := readCase(t, file)
		m, _, problems := FromReference(c.Config, c.Optimizer)
		if len(problems) > 0 {
			continue
		}
		require.Equal(t, weights(t, strings.TrimSuffix(file, ".json")+".safetensors"), m.Parameters(), file)
		checked++
	}
	require.GreaterOrEqual(t, checked, len(takenCases))
}

// TestParametersOfSharedExperts: one more feed-forward part in each layer with experts, and a gate as wide as the stream.
func TestParametersOfSharedExperts(t *testing.T) {
	m := parsed(t, edited(t, "mtp_num_layers: 2", "mtp_num_layers: 2\n  moe_layer_freq: [0, 1]")).Model
	before := m.Parameters()
	m.MoESharedExpertSize = 7
	require.Equal(t, before+3*3*16*7, m.Parameters()) // one decoder layer and two depths; three matrices of 16 · 7
	m.MoESharedExpertGate = true
	require.Equal(t, before+3*(3*16*7+16), m.Parameters())
	m.MoERouterEnableExpertBias = true
	require.Equal(t, before+3*(3*16*7+16), m.Parameters())
	m.GatedLinearUnit, m.MTPUseRepeatedLayer = false, true
	plain := m
	plain.MoESharedExpertSize, plain.MoESharedExpertGate = 0, false
	require.Equal(t, plain.Parameters()+2*(2*16*7+16), m.Parameters())
}

// weights counts the elements of params/* in the header of a safetensors file.
func weights(t *testing.T, path string) int64 {
	t.Helper()
	src, err := os.ReadFile(path)
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(src)
	header := map[string]struct {
		Shape []int64 `json:"shape"`
	}{}
	require.NoError(t, json.Unmarshal(src[8:8+n], &header))
	total := int64(0)
	for name, tensor := range header {
		if strings.HasPrefix(name, "params/") && !strings.HasSuffix(name, ".e_score_correction_bias") {
			elements := int64(1)
			for _, d := range tensor.Shape {
				elements *= d
			}
			total += elements
		}
	}
	return total
}

// TestArithmeticStopsAtTheEnd: sizes that overflow become the greatest number, never a small or negative one.
func TestArithmeticStopsAtTheEnd(t *testing.T) {
	require.Equal(t, 24, product(2, 3, 4))
	require.Equal(t, 0, product(2, 0, math.MaxInt))
	require.Equal(t, 0, product(-2, 3))
	require.Equal(t, math.MaxInt, product(math.MaxInt, 2))
	require.Equal(t, math.MaxInt, product(1<<40, 1<<40, 3))
	require.Equal(t, 6, sum(1, 2, 3))
	require.Equal(t, math.MaxInt, sum(math.MaxInt, 1))
	m := Model{NumLayers: math.MaxInt, HiddenSize: math.MaxInt, NumAttentionHeads: math.MaxInt, NumQueryGroups: math.MaxInt, KVChannels: 2,
		FFNHiddenSize: math.MaxInt, PaddedVocabSize: math.MaxInt, NumMoEExperts: math.MaxInt, MTPNumLayers: math.MaxInt, MoEFFNHiddenSize: 1}
	require.Equal(t, int64(math.MaxInt64), m.Parameters())
	require.Equal(t, "more than 2^63", count(m.Parameters()))
	require.Zero(t, new(Model).layerParameters(true))
	require.Zero(t, new(Model).Parameters())
}

func TestKindsOfLayers(t *testing.T) {
	m := Model{NumLayers: 4, NumMoEExperts: 2, MoELayerFreq: LayerFreq{Every: 2}}
	require.True(t, m.HasMoE())
	require.True(t, m.HasDense())
	m.MoELayerFreq = LayerFreq{}
	require.False(t, m.HasDense())
	m.NumMoEExperts = 0
	require.False(t, m.HasMoE())
	require.True(t, m.HasDense())
}

// TestAllToAllDividesHeads: TP and CP divide heads and groups together; what TP alone does not divide is another rule's.
func TestAllToAllDividesHeads(t *testing.T) {
	s := parsed(t, goodFile) // 4 heads, 2 groups
	problems := func(tp, cp int) []string {
		s.Model.TensorParallel, s.Model.ContextParallel = tp, cp
		c := &checker{s: &s, bad: map[string]bool{}}
		c.allToAll()
		return printed(c.problems)
	}
	require.Empty(t, problems(1, 2))
	require.Empty(t, problems(2, 1))
	require.Equal(t, []string{
		"model.num_query_groups: num_query_groups 2 is not divisible by tensor · context parallel size = 1 · 4, as cp_comm_type a2a needs; nearest legal context_parallel_size: 2"}, problems(1, 4))
	require.Equal(t, []string{
		"model.num_attention_heads: num_attention_heads 4 is not divisible by tensor · context parallel size = 2 · 3, as cp_comm_type a2a needs; nearest legal context_parallel_size: 2",
		"model.num_query_groups: num_query_groups 2 is not divisible by tensor · context parallel size = 2 · 3, as cp_comm_type a2a needs; nearest legal context_parallel_size: 1"}, problems(2, 3))
}

// TestCheck: a scenario changed in Go goes through the same rules; problems have keys and no places.
func TestCheck(t *testing.T) {
	s := parsed(t, edited(t, "mtp_num_layers: 2", "mtp_num_layers: 2\n  sequence_parallel: true"))
	require.Empty(t, s.Check())
	require.Equal(t, []string{"model.sequence_parallel has no effect with tensor_model_parallel_size 1"}, s.Notes)
	s.Model.TensorParallel, s.Dist.WorldSize = 4, 4
	require.Equal(t, "model.num_query_groups: num_query_groups 2 is not divisible by tensor_model_parallel_size 4; "+
		"nearest legal tensor_model_parallel_size: 2", s.Check().Error())
	s.Model.NumLayers = 0
	require.Equal(t, "model.num_layers: required key is missing; expected a whole number from 1 to 1024", s.Check()[0].String())
	s = parsed(t, smallFile)
	s.Train.DType, s.Optimizer.LR = "fp8", 0
	require.Equal(t, []string{"train.dtype: found fp8, expected fp32 or fp64"}, printed(s.Check()))
}
