package mesh

import "fmt"

// CheckGroups says why pp ranks cannot run interleaved chunks in groups of g microbatches (0: pp), each of which a chunk
// takes in sequence. Groups below pp would leave passes that wait for each other in a circle. A step or a last group below
// pp would end, but with more idle time than without interleaving; Megatron refuses both (SEMANTICS §9.2).
func CheckGroups(pp, microbatches, g int) error {
	if g == 0 {
		g = pp
	}
	switch last := microbatches % g; {
	case g < pp:
		return fmt.Errorf("groups of %d microbatches are smaller than pipeline_model_parallel_size %d; nearest legal: %d", g, pp, pp)
	case g > microbatches:
		return fmt.Errorf("interleaved chunks take groups of %d microbatches, and a step has %d on each data-parallel rank; nearest legal number of microbatches: %d", g, microbatches, g)
	case last != 0 && last < pp:
		return fmt.Errorf("%d microbatches are groups of %d and a last one of %d, smaller than pipeline_model_parallel_size %d; nearest legal number of microbatches: %d",
			microbatches, g, last, pp, microbatches-last)
	}
	return nil
}
