package model

import (
	"fmt"

	"phalanx/nn"
	"phalanx/tensor"
)

// tables are the embeddings of tokens and of positions, and the head.
type tables[T tensor.Float] struct {
	embed     table[T]
	positions table[T] // learned positions; its param is nil without
	head      *nn.Param[T]
}

// table is a parameter with several uses, whose gradients accumulate apart and are added in one order, wherever they lie.
// Stages that use it behind the first hold a copy of it. A stage without uses knows it by name.
type table[T tensor.Float] struct {
	param *nn.Param[T]
	tag   nn.Tag // of the messages that join its uses
	uses  []use
	mine  map[string]int // uses of this rank: their place among its own, a head before the others
}

// use is one use of a table.
type use struct {
	name  string
	stage int // pipeline rank
}

const (
	embeddingUse = "embedding"
	headUse      = "head"
)

func depthUse(k int) string { return fmt.Sprintf("mtp.%d", k) }

// usesOf lists the uses of an embedding in the order in which their gradients are added: embedding, tied head, depths.
// Depths that share a layer share the first one's.
func (b *builder[T]) usesOf(h holders, tiedHead bool) []use {
	uses := []use{{embeddingUse, h.embedding}}
	if tiedHead {
		uses = append(uses, use{headUse, h.loss})
	}
	for k, stage := range h.depths {
		if k == 0 || !b.cfg.MTPUseRepeatedLayer {
			uses = append(uses, use{depthUse(k + 1), stage})
		}
	}
	return uses
}

// table declares a table with its uses; the first holds the original.
func (b *builder[T]) table(s nn.Spec, tag nn.Tag, uses []use) table[T] {
	t := table[T]{tag: tag, uses: uses, mine: map[string]int{}}
	t.place(b.stage)
	s.Uses, s.Shared = len(t.mine), b.stage != uses[0].stage
	b.foreign = len(t.mine) == 0
	t.param = b.declare(s)
	return t
}

// place numbers the uses of a stage. A head comes first, into the parameter's own gradient: it fills all of it, while the
// others are lookups.
func (t *table[T]) place(stage int) {
	for _, head := range []bool{true, false} {
		for _, u := range t.uses {
			if u.stage == stage && (u.name == headUse) == head {
				t.mine[u.name] = len(t.mine)
			}
		}
	}
}

// tables declares the embeddings and, unless tied, the head.
func (b *builder[T]) tables(h holders) tables[T] {
	m := b.cfg
	words := nn.Spec{Name: "model.embed_tokens.weight", Shape: []int{m.PaddedVocabSize, m.HiddenSize}, Shard: b.shard(0), Init: b.normal(), EmbeddingOrOutput: true, ByRow: true}
	t := tables[T]{embed: b.table(words, nn.TagEmbeddingUse, b.usesOf(h, !m.UntieEmbeddings))}
	if m.PositionEmbedding == "learned_absolute" {
		t.positions = b.table(nn.Spec{Name: "model.embed_positions.weight", Shape: []int{m.MaxPositionEmbeddings, m.HiddenSize}, Shard: nn.Unsharded,
			SumTP: b.sp(), Init: b.normal()}, nn.TagPositionUse, b.usesOf(h, false))
	}
	t.head = t.embed.param
	if m.UntieEmbeddings {
		b.on(h.loss)
		t.head = b.declare(nn.Spec{Name: "lm_head.weight", Shape: words.Shape, Shard: words.Shard, Init: b.normal(), EmbeddingOrOutput: true})
	}
	return t
}

// acc is the accumulator of one of this rank's uses; none without.
func (t *table[T]) acc(name string) nn.Use[T] {
	switch i, ok := t.mine[name]; {
	case !ok:
		return nn.Use[T]{}
	case i == 0:
		return nn.Use[T]{Grad: t.param.Grad}
	default:
		return t.param.Uses[i-1]
	}
}

// grads are the accumulators of one use of both embeddings.
func (t *tables[T]) grads(name string) nn.EmbeddingGrads[T] {
	return nn.EmbeddingGrads[T]{Words: t.embed.acc(name), Positions: t.positions.acc(name).Grad}
}

// headGrad is the accumulator of the head.
func (t *tables[T]) headGrad() []T {
	if t.head != t.embed.param {
		return t.head.Grad
	}
	return t.embed.acc(headUse).Grad
}
