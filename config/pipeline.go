package config

import (
	"errors"
	"fmt"
	"strings"

	"phalanx/mesh"
)

const (
	pipelineKey     = "model.pipeline_model_parallel_size"
	virtualKey      = "model.virtual_pipeline_model_parallel_size"
	perVirtualKey   = "model.num_layers_per_virtual_pipeline_stage"
	firstStageKey   = "model.num_layers_in_first_pipeline_stage"
	lastStageKey    = "model.num_layers_in_last_pipeline_stage"
	withEmbedKey    = "model.account_for_embedding_in_pipeline_split"
	withLossKey     = "model.account_for_loss_in_pipeline_split"
	layoutKey       = "model.pipeline_model_parallel_layout"
	groupKey        = "model.microbatch_group_size_per_vp_stage"
	numLayersKey    = "model.num_layers"
	numDepthsKey    = "model.mtp_num_layers"
	globalBatchKey  = "train.global_batch_size"
	microBatchKey   = "train.micro_batch_size"
	megatronsDepths = "Megatron has all MTP depths in one chunk"
)

// PipelineLayout is what lies on each stage of the pipeline: as pipeline_model_parallel_layout says, else by count. With
// one stage the whole model is one chunk. The error starts with the key to change.
func (m *Model) PipelineLayout() (mesh.Layout, error) {
	l, fault := m.pipelineLayout()
	if fault != nil {
		return l, errors.New(fault.key + ": " + fault.text)
	}
	return l, nil
}

// keyFault is a problem with a key.
type keyFault struct{ key, text string }

func (m *Model) stack() mesh.Stack {
	return mesh.Stack{Layers: m.NumLayers, Depths: m.MTPNumLayers, Repeated: m.MTPUseRepeatedLayer}
}

func (m *Model) pipelineLayout() (mesh.Layout, *keyFault) {
	switch {
	case m.PipelineParallel <= 1:
		l, err := mesh.Even(1, 1, m.stack(), mesh.Split{})
		return l, wrapFault(numLayersKey, err)
	case m.PipelineLayoutText != "":
		return m.layoutByText()
	}
	vpp, fault := m.virtualByCount()
	if fault != nil {
		return mesh.Layout{}, fault
	}
	split := mesh.Split{First: m.LayersInFirstStage, Last: m.LayersInLastStage, Embedding: m.AccountForEmbedding, Loss: m.AccountForLoss}
	if _, err := mesh.Even(m.PipelineParallel, 1, m.stack(), split); err != nil {
		return mesh.Layout{}, wrapFault(m.splitKey(), err)
	}
	l, err := mesh.Even(m.PipelineParallel, vpp, m.stack(), split)
	return l, wrapFault(virtualKey, err)
}

func wrapFault(key string, err error) *keyFault {
	if err == nil {
		return nil
	}
	return &keyFault{key, err.Error()}
}

// splitKey is the key that a problem with the shares of the stages belongs to.
func (m *Model) splitKey() string {
	switch {
	case m.LayersInFirstStage > 0:
		return firstStageKey
	case m.LayersInLastStage > 0:
		return lastStageKey
	case m.AccountForEmbedding:
		return withEmbedKey
	case m.AccountForLoss:
		return withLossKey
	}
	return numLayersKey
}

func (m *Model) layoutByText() (mesh.Layout, *keyFault) {
	l, err := mesh.ParseLayout(m.PipelineLayoutText, m.PipelineParallel, m.stack())
	if err != nil {
		return l, wrapFault(layoutKey, err)
	}
	if m.VirtualPipeline > 0 && m.VirtualPipeline != l.VPP {
		return l, &keyFault{virtualKey, fmt.Sprintf("found %d, and pipeline_model_parallel_layout has %d chunks for %d ranks; nearest legal: %d", m.VirtualPipeline, len(l.Chunks), l.PP, l.VPP)}
	}
	return l, nil
}

// virtualByCount is the number of virtual chunks of a rank where no layout text says it.
func (m *Model) virtualByCount() (int, *keyFault) {
	if m.LayersPerVirtualStage == 0 {
		return max(m.VirtualPipeline, 1), nil
	}
	whole := m.NumLayers
	if m.AccountForEmbedding {
		whole++
	}
	if m.AccountForLoss {
		whole++
	}
	share := whole / m.PipelineParallel
	if share%m.LayersPerVirtualStage != 0 || share == 0 {
		return 0, &keyFault{perVirtualKey, fmt.Sprintf("%d does not divide the %d layers of a stage; nearest legal: %d", m.LayersPerVirtualStage, share, divisor(max(share, 1), m.LayersPerVirtualStage))}
	}
	return share / m.LayersPerVirtualStage, nil
}

// pipeline holds the rules of the pipeline. They do not ask whether its size is one of this version: what else is wrong
// is told at once.
func (c *checker) pipeline() {
	m := &c.s.Model
	if m.PipelineParallel == 1 {
		if m.VirtualPipeline > 1 {
			c.fail(virtualKey, fmt.Sprintf("%d chunks on each rank need a pipeline_model_parallel_size above 1; nearest legal: 1", m.VirtualPipeline), pipelineKey)
		}
		c.noEffect("with pipeline_model_parallel_size 1", virtualKey, perVirtualKey, firstStageKey, lastStageKey, withEmbedKey, withLossKey, layoutKey, groupKey)
		return
	}
	if !specOf(pipelineKey).in.has(float64(m.PipelineParallel)) || !c.ok(numLayersKey, numDepthsKey) {
		return
	}
	c.oneDivision()
	if !c.ok(virtualKey, perVirtualKey, firstStageKey, lastStageKey, withEmbedKey, withLossKey, layoutKey) {
		return
	}
	l, fault := m.pipelineLayout()
	if fault != nil {
		if fault.key == numLayersKey {
			fault.text += fmt.Sprintf("; nearest legal pipeline_model_parallel_size: %d", divisor(m.NumLayers, m.PipelineParallel))
		}
		c.fail(fault.key, fault.text)
		return
	}
	if l.Spread() {
		c.note("%s %s: MTP depths are in several chunks; %s", layoutKey, l, megatronsDepths)
	}
	c.interleaving(l)
}

// oneDivision checks that the keys that divide the layers do not say it twice.
func (c *checker) oneDivision() {
	m := &c.s.Model
	uneven := m.LayersInFirstStage > 0 || m.LayersInLastStage > 0
	for _, k := range []struct {
		key   string
		given bool
	}{
		{perVirtualKey, m.LayersPerVirtualStage > 0}, {firstStageKey, m.LayersInFirstStage > 0}, {lastStageKey, m.LayersInLastStage > 0},
		{withEmbedKey, m.AccountForEmbedding}, {withLossKey, m.AccountForLoss},
	} {
		other := ""
		switch {
		case !k.given:
		case m.PipelineLayoutText != "":
			other = layoutKey
		case k.key == perVirtualKey && m.VirtualPipeline > 0:
			other = virtualKey
		case k.key == perVirtualKey && uneven, (k.key == withEmbedKey || k.key == withLossKey) && uneven:
			other = firstStageKey
			if m.LayersInFirstStage == 0 {
				other = lastStageKey
			}
		}
		if other != "" {
			c.fail(k.key, "divides the layers in another way than "+strings.TrimPrefix(other, "model.")+"; expected one of the two", other)
		}
	}
}

// interleaving checks the groups of microbatches that interleaved chunks take in sequence.
func (c *checker) interleaving(l mesh.Layout) {
	m := &c.s.Model
	if l.VPP == 1 {
		c.noEffect("with one chunk on each pipeline rank", groupKey)
		return
	}
	n := c.s.NumMicrobatches()
	if !c.ok(groupKey, globalBatchKey, microBatchKey, "dist.world_size") || n == 0 {
		return
	}
	if err := mesh.CheckGroups(l.PP, n, m.MicrobatchGroup); err != nil {
		key := globalBatchKey
		if m.MicrobatchGroup > 0 {
			key = groupKey
		}
		c.fail(key, err.Error())
	}
}
