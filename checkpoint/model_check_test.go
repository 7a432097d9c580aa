package checkpoint

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/train"
)

// Every key that must agree is a key of the model section, and a difference in it is refused by its name.
func TestMeaningKeys(t *testing.T) {
	keys, err := ModelKeys(&config.Model{})
	require.NoError(t, err)
	for _, key := range meaningKeys {
		var all map[string]any
		require.NoError(t, json.Unmarshal(keys, &all))
		require.Contains(t, all, key)
		all[key] = "other"
		other, err := json.Marshal(all)
		require.NoError(t, err)
		m := manifestOf(train.Position{}, BlockBytes)
		m.Model = other
		s := &Sharded{Manifest: &m, dir: "d"}
		err = s.CheckModel(&config.Model{})
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "found model."+key+`: "other", expected `)
		m.Model = keys
		require.NoError(t, s.CheckModel(&config.Model{}))
	}
}
