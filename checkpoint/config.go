package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"phalanx/config"
)

// layoutKeys are keys of the model section that say how a run was cut, not what the weights are. They are left out:
// the files of a checkpoint are the same for every layout.
var layoutKeys = []string{
	"tensor_model_parallel_size", "sequence_parallel", "context_parallel_size", "pipeline_model_parallel_size",
	"expert_model_parallel_size", "expert_tensor_parallel_size", "virtual_pipeline_model_parallel_size",
	"num_layers_per_virtual_pipeline_stage", "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage",
	"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "pipeline_model_parallel_layout",
	"microbatch_group_size_per_vp_stage",
}

// WriteConfig writes config.json into a checkpoint folder: the keys of the model section under their Megatron names,
// in the order of config.Model, one a line. Equal models give equal files.
func WriteConfig(dir string, m *config.Model) error {
	b, err := configJSON(m)
	if err != nil {
		return err
	}
	return replace(filepath.Join(dir, ConfigName), int64(len(b)), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

func configJSON(m *config.Model) ([]byte, error) {
	v := reflect.ValueOf(m).Elem()
	b := []byte("{")
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if key == "" || key == "-" || slices.Contains(layoutKeys, key) {
			continue
		}
		value, err := json.Marshal(jsonValue(v.Field(i).Interface()))
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: key %s: %w", ConfigName, key, err)
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n  %q: %s", key, value)
	}
	return append(b, "\n}\n"...), nil
}

// jsonValue is a value as the scenario file writes it.
func jsonValue(v any) any {
	f, ok := v.(config.LayerFreq)
	switch {
	case !ok:
		return v
	case f.Pattern != nil:
		return f.Pattern
	}
	return max(f.Every, 1)
}
