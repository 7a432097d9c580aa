package convert_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/convert"
)

// TestMemory: memory does not grow with the model. All that is allocated, freed or not, while 32 MiB of
// fp32 are written, is the buffers of one piece, in one file as in 17.
func TestMemory(t *testing.T) {
	m := dense("llama", "LlamaForCausalLM", "BF16", false, false).set("vocab_size", "1048576")
	w := m.tensors["model.norm.weight"]
	row := append(w.data[:16:16], w.data...)
	big := make([]byte, 0, 1048576*16)
	for range 1048576 / 2 {
		big = append(big, row...)
	}
	m.tensors["model.embed_tokens.weight"] = weight{"BF16", []int{1048576, 8}, big}
	from := m.write(t, 1)
	var before, between, after runtime.MemStats
	runtime.ReadMemStats(&before)
	ours, r := run(t, from, convert.Options{})
	runtime.ReadMemStats(&between)
	require.Greater(t, r.Bytes, int64(32<<20))
	require.Less(t, between.TotalAlloc-before.TotalAlloc, uint64(24<<20))
	run(t, ours, convert.Options{DType: "bf16", ShardBytes: 1 << 20})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-between.TotalAlloc, uint64(24<<20))
}
