package messages

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChecksumsAreJoined(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		b := make([]byte, rng.IntN(1<<(i%17)))
		for k := range b {
			b[k] = byte(rng.Uint32())
		}
		cut := rng.IntN(len(b) + 1)
		joined := ChecksumJoin(Checksum(b[:cut]), Checksum(b[cut:]), len(b)-cut)
		require.Equal(t, Checksum(b), joined, "%d bytes cut at %d", len(b), cut)
		require.Equal(t, ChecksumMore(Checksum(b[:cut]), b[cut:]), joined)
	}
	// a gibibyte of zeros behind is no more work
	require.Equal(t, ChecksumJoin(5, 0, 3<<29), ChecksumJoin(ChecksumJoin(5, 0, 1<<30), 0, 1<<29))
	require.NotEqual(t, ChecksumJoin(5, 0, 1<<30), ChecksumJoin(5, 0, 1<<29))
}
