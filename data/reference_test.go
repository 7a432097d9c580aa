package data_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/internal/golden"
)

func referenceScenario(t *testing.T, name string) *config.Scenario {
	t.Helper()
	dir, err := golden.Dir()
	require.NoError(t, err)
	s := scenario("reference", 2, 2, 0, 0)
	s.Dir, s.Dataset.Path = dir, name+".json"
	return s
}

func TestReference(t *testing.T) {
	s := referenceScenario(t, "moe-mtp")
	d := open(t, s)
	require.Equal(t, "reference: case moe-mtp, 3 steps of 2 microbatches of 2 rows of 16, vocabulary of 32", d.Summary)
	require.Equal(t, 32, d.VocabSize)
	c, err := golden.Load(filepath.Join(s.Dir, "moe-mtp.json"))
	require.NoError(t, err)
	defer c.Close()
	for step := range 3 {
		for mb := range 2 {
			want, err := c.Microbatch(step, mb)
			require.NoError(t, err)
			require.Equal(t, want, d.Train.Microbatch(step, mb))
			require.Equal(t, want, d.Train.Microbatch(step+3, mb), "after the last step from the first again")
		}
	}
	m := open(t, referenceScenario(t, "dense-mtp-nolossmask")).Train.Microbatch(0, 0)
	require.True(t, m.Loss.AllOnes)
	require.NotNil(t, m.Pad)
}

func TestReferenceMasks(t *testing.T) {
	s := referenceScenario(t, "moe-mtp")
	s.Dataset.PaddingMask, s.Dataset.LossMask = "absent", "absent"
	m := open(t, s).Train.Microbatch(0, 0)
	require.Nil(t, m.Pad)
	require.True(t, m.Loss.AllOnes)
	s = referenceScenario(t, "dense")
	s.Dataset.PaddingMask, s.Dataset.LossMask = "present", "present"
	m = open(t, s).Train.Microbatch(0, 0)
	require.Equal(t, make([]bool, 32), m.Pad.Pad)
	require.EqualValues(t, 32, m.Loss.Count())
	require.False(t, m.Loss.AllOnes)
}

func TestReferenceProblems(t *testing.T) {
	s := referenceScenario(t, "moe-mtp")
	s.Train.MicroBatchSize, s.Train.GlobalBatchSize, s.Dataset.SeqLength = 4, 8, 32
	require.Equal(t, `train.micro_batch_size: found 4, expected 2, that of case moe-mtp
train.global_batch_size: found 8, expected 4, that of case moe-mtp
dataset.seq_length: found 32, expected 16, that of case moe-mtp`, refused(t, s))
	require.Contains(t, refused(t, referenceScenario(t, "nowhere")), "nowhere.json: no such file or directory")
}
