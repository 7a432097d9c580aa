package config

import (
	_ "embed"
	"strings"
)

// megatronText lists the keys of Megatron-Core's configurations under Megatron-Bridge's sections, one section.key a line:
// those we take and those we do not, and the one of its command line that has no other name. It tells "Megatron has that" from a mistyped key, and where a key's name is from.
//
//go:embed megatron_keys.txt
var megatronText string

// megatronKeys are the dotted keys Megatron has.
var megatronKeys = megatronSet(megatronText)

func megatronSet(text string) map[string]bool {
	keys := map[string]bool{}
	for line := range strings.Lines(text) {
		keys[strings.TrimSpace(line)] = true
	}
	return keys
}

// isMegatronSection reports whether Megatron has a section of that name.
func isMegatronSection(name string) bool {
	for key := range megatronKeys {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}

// megatronSectionOf is a section in which Megatron has the key, the alphabetically first; empty if none.
func megatronSectionOf(name string) string {
	first := ""
	for key := range megatronKeys {
		section, leaf, _ := strings.Cut(key, ".")
		if leaf == name && (first == "" || section < first) {
			first = section
		}
	}
	return first
}

// otherSpellings are names that Megatron's command line or older releases use for what a key of ours says.
var otherSpellings = map[string]string{
	"model.num_experts":                         "model.num_moe_experts",
	"model.swiglu":                              "model.gated_linear_unit",
	"model.squared_relu":                        "model.activation_func",
	"model.norm_epsilon":                        "model.layernorm_epsilon",
	"model.vocab_size":                          "model.padded_vocab_size",
	"model.share_embeddings_and_output_weights": "model.untie_embeddings_and_output_weights",
	"model.params_dtype":                        "train.dtype",
	"model.rotary_embedding_base":               "model.rotary_base",
	"model.rotary_embedding_percent":            "model.rotary_percent",
	"model.use_rotary_position_embeddings":      "model.position_embedding_type",
	"model.moe_router_score":                    "model.moe_router_score_function",
	"dataset.sequence_length":                   "dataset.seq_length",
	"dataset.random_seed":                       "rng.seed",
	"dataset.data_path":                         "dataset.paths",
	"dataset.packed_sequence_specs":             "dataset.packed",
	"dataset.enable_in_batch_packing":           "dataset.packed",
	"dataset.packed_sequence_size":              "dataset.seq_length",
	"dataset.pad_seq_to_mult":                   "dataset.pad_to_multiple",
	"tokenizer.tokenizer_type":                  "tokenizer.kind",
	"checkpoint.no_save_optim":                  "checkpoint.save_optim",
	"checkpoint.no_load_optim":                  "checkpoint.load_optim",
	"checkpoint.no_load_rng":                    "checkpoint.load_rng",
	"checkpoint.resume":                         "checkpoint.load",
	"train.exit_on_missing_checkpoint":          "checkpoint.exit_on_missing_checkpoint",
	"train.bf16":                                "train.dtype",
	"train.fp16":                                "train.dtype",
}
