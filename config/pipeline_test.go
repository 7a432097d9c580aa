package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPipelineLayout(t *testing.T) {
	for want, m := range map[string]Model{
		"EttttmL":        {PipelineParallel: 1, PipelineLayoutText: "Ett|ttmL"}, // the whole model lies on the only stage
		"Ett|ttmL":       {PipelineParallel: 2},
		"Et|t|t|tmL":     {PipelineParallel: 2, VirtualPipeline: 2},
		"Et|tttmL":       {PipelineParallel: 2, LayersInFirstStage: 1},
		"Ettt|tmL":       {PipelineParallel: 2, LayersInLastStage: 1},
		"E|tt|tt|mL":     {PipelineParallel: 4, PipelineLayoutText: "E|(tt|)*2mL"},
		"Ett|t|t|m||L":   {PipelineParallel: 3, VirtualPipeline: 2, PipelineLayoutText: "Ett|t*1|t|m||L"},
		"E|t|t|t|t|mL":   {PipelineParallel: 3, LayersPerVirtualStage: 1, AccountForEmbedding: true, AccountForLoss: true},
		"Et|tt|tmL":      {PipelineParallel: 3, AccountForEmbedding: true, AccountForLoss: true},
		"Ett|tt|m|L":     {PipelineParallel: 4, PipelineLayoutText: "Ett|tt|m|L", VirtualPipeline: 1},
		"Et|tt|t||||m|L": {PipelineParallel: 4, PipelineLayoutText: "Et|tt|t||||m|L"},
	} {
		m.NumLayers, m.MTPNumLayers = 4, 1
		l, err := m.PipelineLayout()
		require.NoError(t, err)
		require.Equal(t, want, l.String())
	}
	m := Model{NumLayers: 4, PipelineParallel: 2, PipelineLayoutText: "E"}
	_, err := m.PipelineLayout()
	require.EqualError(t, err, "model.pipeline_model_parallel_layout: character 1: found E; expected L exactly once, as the last letter")
}

// A layout that Megatron does not have is legal and noted.
func TestDepthsInSeveralChunksAreNoted(t *testing.T) {
	text := edited(t, "  mtp_num_layers: 2\n", "  mtp_num_layers: 2\n  pipeline_model_parallel_layout: Ett|m|mL\n")
	file, problems := Parse("f.yaml", []byte(text), nil)
	require.Empty(t, problems)
	require.Contains(t, file.Runs()[0].Notes, "model.pipeline_model_parallel_layout has no effect with pipeline_model_parallel_size 1")
	s := file.Runs()[0]
	s.Model.PipelineParallel, s.Dist.WorldSize = 3, 3
	s.Check()
	require.Contains(t, s.Notes, "model.pipeline_model_parallel_layout Ett|m|mL: MTP depths are in several chunks; Megatron has all MTP depths in one chunk")
}
