package config

import (
	"slices"
	"strconv"
	"strings"
)

// refusal is something a scenario may say that this version cannot do. To support it later, remove its line here (and,
// for a key or section, give it a field).
type refusal struct {
	key    string                  // with * for indices
	values func(value string) bool // the refused values of a key we have; nil: the key itself
	list   bool                    // refuses a list where the key takes one value
	now    string                  // what this version takes instead
}

// refusals is everything that Megatron's values have, or that is planned, and comes with a later version.
var refusals = []refusal{
	{key: "mutate", values: is(laterMutations()...)},
	{key: "dataset.rows.*.embeddings", now: "dataset.embeddings: precomputed, for all rows"},

	{key: "model.cp_comm_type", values: is("a2a+p2p")},
	{key: "model.cp_comm_type", list: true, now: "one type for all layers"},
	{key: "model.position_embedding_type", values: is("mrope", "yarn")},
	{key: "model.activation_func", values: is("gelu", "quick_gelu", "relu")},
	{key: "model.moe_router_load_balancing_type", values: is("sinkhorn", "quantile")},
	{key: "model.moe_router_dtype", now: "a router that works in fp64, whatever train.dtype"},
	{key: "model.moe_enable_deepep", now: "moe_token_dispatcher_type flex, which sends a row once to each rank"},
	{key: "optimizer.optimizer", values: is("sgd", "lion", "muon", "dist_muon")},
	{key: "train.dtype", values: is("bf16", "fp16")},
}

// moreThan refuses whole numbers above n.
func moreThan(n int) func(string) bool {
	return func(value string) bool {
		x, err := strconv.Atoi(value)
		return err == nil && x > n
	}
}

// is refuses words.
func is(words ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(words, value) }
}

// refusedKey is the refusal of a key or section that has no field yet; nil if there is none.
func refusedKey(star string) *refusal {
	for i, r := range refusals {
		if r.values == nil && !r.list && r.key == star {
			return &refusals[i]
		}
	}
	return nil
}

// refusedList is the refusal of a list for a key that takes one value; nil if there is none.
func refusedList(star string) *refusal {
	for i, r := range refusals {
		if r.list && r.key == star {
			return &refusals[i]
		}
	}
	return nil
}

// refusedValue is the refusal of a value of a key; nil if there is none.
func refusedValue(star, value string) *refusal {
	for i, r := range refusals {
		if r.values != nil && r.key == star && r.values(value) {
			return &refusals[i]
		}
	}
	return nil
}

// legalNow are the values of an enumeration that no refusal takes out.
func legalNow(s *spec) []string {
	return slices.DeleteFunc(slices.Clone(s.legal), func(v string) bool { return refusedValue(s.key, v) != nil })
}

// keyMessage is the refusal of a key.
func (r *refusal) keyMessage() string { return "not in this version; supported now: " + r.now }

// valueMessage is the refusal of a value.
func (r *refusal) valueMessage(found string) string {
	now := r.now
	if now == "" {
		now = strings.Join(legalNow(specOf(r.key)), ", ")
	}
	return "found " + found + ", which is not in this version; legal now: " + now
}
