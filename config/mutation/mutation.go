// Package mutation names the planted bugs: each makes the trainer wrong in one public way, so that a user sees what
// the bug looks like and whether an expectation catches it. A set is empty in every real run; code asks it outside of
// hot loops.
package mutation

import "fmt"

// Set is a set of mutations.
type Set uint64

// The mutations of this version. The comment says what goes wrong; docs/mutations.md says where it was seen.
const (
	MaskNone                Set = 1 << iota // the MTP depths get no loss mask: ones
	MaskFillWrong                           // the padding mask itself is rolled: its fill, 0, means valid
	ShardRoll                               // each tensor-parallel shard of the padding mask is rolled as a sequence
	DoubleRoll                              // the depths get a loss mask that was rolled before
	UnpaddedBoundaries                      // rolls cut documents at logical ends while memory has physical places
	PhysicalEnd                             // a rolled value survives up to its document's physical end
	LMCountForMTP                           // every depth is divided by the LM's token count
	LocalRatio                              // a depth is scaled by local LM tokens over local depth tokens
	MaskOffByOne                            // the loss mask is aligned with inputs instead of labels
	NoPositionRoll                          // position ids are not rolled with the tokens
	LocalMean                               // per-token loss is a mean of the microbatches' own means
	DropReduce                              // gradients are not summed over ranks
	AvgInsteadOfSum                         // partial gradients are averaged over the tensor-parallel group
	UnclampedZeroTokens                     // denominators are not clamped to one token
	EmbeddingsMaskUnshifted                 // precomputed embeddings are rolled, their padding mask is not
	HeadNotDetached                         // detached heads still give their gradient to the output weight
	DropOddToken                            // lengths that 2·CP does not divide lose their last tokens
	RopeDoc0Table                           // later documents get the angles of the first one's chunks
	WrongCPLayoutRoll                       // rolls assume contiguous shards, the layout is zigzag
	PositionsNotReset                       // angles go on over document boundaries
	NormCountsReplicas                      // the gradient norm counts replicated parameters on every rank
	LocalVocabCE                            // the cross entropy sums over this rank's part of the vocabulary only
	MaskWrongReplica                        // every data-parallel replica gets the padding mask of the first
	MaskByPadID                             // labels equal to the pad token do not count, real ones too
	PaddingInRouter                         // the router never sees the padding mask
	SkippedTokensCounted                    // tokens of a dropped microbatch stay in the denominator
	AuxLayoutScaled                         // the balancing gradient is divided by the ranks that share the sequence
	RecomputeDoubleCount                    // a recomputed forward counts its tokens for the expert bias again
	AuxDetached                             // balancing losses are logged and give no gradient
	SkipEmptyExpert                         // an expert without tokens leaves its gradient as it found the memory: NaN
	BiasPerMicrobatch                       // the expert bias moves after every microbatch
	EvalCounts                              // evaluation counts tokens for the expert bias
	end
)

var names = []string{"mask_none", "mask_fill_wrong", "shard_roll", "double_roll", "unpadded_boundaries", "physical_end",
	"lm_count_for_mtp", "local_ratio", "mask_off_by_one", "no_position_roll", "local_mean", "drop_reduce", "avg_instead_of_sum",
	"unclamped_zero_tokens", "embeddings_mask_unshifted", "head_not_detached", "drop_odd_token", "rope_doc0_table",
	"wrong_cp_layout_roll", "positions_not_reset", "norm_counts_replicas", "local_vocab_ce", "mask_wrong_replica",
	"mask_by_pad_id", "padding_in_router", "skipped_tokens_counted", "aux_layout_scaled", "recompute_double_count",
	"aux_detached", "skip_empty_expert", "bias_per_microbatch", "eval_counts"}

// Names are the names of all mutations of this version.
func Names() []string { return append([]string(nil), names...) }

// Parse makes a set of names.
func Parse(list []string) (Set, error) {
	var s Set
	for _, name := range list {
		found := false
		for i, n := range names {
			if n == name {
				s |= 1 << i
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("mutation: no mutation %q", name)
		}
	}
	return s, nil
}

// Has reports whether a mutation is on.
func (s Set) Has(m Set) bool { return s&m != 0 }
