package config

import (
	"fmt"
	"slices"

	"phalanx/config/mutation"
)

// listedMutations are all planted bugs that scenario files may name one day; those that package mutation lacks come with a later version.
var listedMutations = []string{
	"mask_none", "mask_fill_wrong", "shard_roll", "double_roll", "unpadded_boundaries", "physical_end", "lm_count_for_mtp", "local_ratio",
	"mask_off_by_one", "no_position_roll", "local_mean", "drop_reduce", "avg_instead_of_sum", "double_count_on_replay", "eval_counts",
	"bf16_counts", "state_leak", "conv_shard_reset", "unclamped_zero_tokens", "hybrid_mask_dropped", "embeddings_mask_unshifted",
	"stale_generation", "dup_message", "head_not_detached", "drop_odd_token", "rope_doc0_table", "wrong_cp_layout_roll",
	"positions_not_reset", "norm_counts_replicas", "local_vocab_ce", "mask_wrong_replica", "skipped_tokens_counted", "mask_by_pad_id",
	"padding_in_router", "aux_layout_scaled", "recompute_double_count", "aux_detached", "skip_empty_expert", "bias_per_microbatch",
}

// laterMutations are the listed bugs that this version cannot plant.
func laterMutations() []string {
	now := mutation.Names()
	return slices.DeleteFunc(slices.Clone(listedMutations), func(name string) bool { return slices.Contains(now, name) })
}

// allMutations are the names that mutate knows, those of later versions included.
func allMutations() []string { return append(mutation.Names(), laterMutations()...) }

// mutate holds the rules between the planted bugs; each name is checked as a value.
func (c *checker) mutate() {
	for i, name := range c.s.Mutate {
		if slices.Contains(c.s.Mutate[:i], name) {
			c.fail(c.entry("mutate", i), fmt.Sprintf("%s is given twice; remove one", show(name)))
		}
	}
}
