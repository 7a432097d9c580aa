// Package convert turns models of Hugging Face into checkpoints of this program and back: config.json into the model
// section of a scenario, tensors by name, shards with their index. Tensors are streamed in pieces, so that memory does
// not depend on the model's size. What this version cannot take is refused by name.
package convert

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"phalanx/checkpoint"
)

// ShardBytes is the usual size of a shard: what Hugging Face's own writer takes.
const ShardBytes = 5_000_000_000

// Options say what to make of a model.
type Options struct {
	DType        string // fp32, bf16 or fp64; "": fp32 on import, as stored on export
	DropMTP      bool   // leave all MTP layers out
	ShardBytes   int64  // largest shard on export; 0: ShardBytes
	Architecture string // model_type on export; "": the first that is this model
	DryRun       bool   // check everything that can be checked without writing
}

// Report says what became of a model.
type Report struct {
	From         string   `json:"from"`
	To           string   `json:"to"`
	Direction    string   `json:"direction"` // import or export
	Architecture string   `json:"architecture"`
	Read         []string `json:"read"`  // element types
	Wrote        []string `json:"wrote"` // element types
	Parameters   int64    `json:"parameters"`
	MTPLayers    int      `json:"mtp_layers"` // kept
	Tensors      int      `json:"tensors"`    // written
	Bytes        int64    `json:"bytes"`      // of the tensors written
	Files        []string `json:"files"`
	Checked      []Left   `json:"checked"` // copies found equal, and left out
	Dropped      []Left   `json:"dropped"`
	Added        []Left   `json:"added"`   // tensors written that the source has not
	Ignored      []string `json:"ignored"` // fields of config.json that change nothing here
	Notes        []string `json:"notes"`
	DryRun       bool     `json:"dry_run"`
	Model        []string `json:"model"` // the model section, a line a key
}

// Convert converts FROM into the new folder TO. FROM is a folder of Hugging Face (config.json with model_type), a
// checkpoint of this program, or a reference case. Input that cannot be taken is Problems, a *checkpoint.FormatError or a
// *golden.Error; then nothing is written.
func Convert(ctx context.Context, from, to string, o Options) (*Report, error) {
	if o.DType != "" && stored[o.DType] == "" {
		return nil, one("--dtype", "", "found %q, expected fp32, bf16 or fp64", o.DType)
	}
	if o.ShardBytes == 0 {
		o.ShardBytes = ShardBytes
	}
	j := &job{copy: newCopier(ctx), o: o, r: &Report{From: from, To: to, DryRun: o.DryRun}}
	defer j.close()
	if strings.HasSuffix(from, ".json") && filepath.Base(from) != checkpoint.ConfigName {
		return j.r, j.fromCase(from)
	}
	dir, err := folder(from)
	if err != nil {
		return nil, err
	}
	c, err := readObject(filepath.Join(dir, checkpoint.ConfigName))
	if err != nil {
		return nil, err
	}
	if _, ours := c.get("num_layers"); ours {
		return j.r, j.toHF(dir, c)
	}
	return j.r, j.fromHF(dir, c)
}

// folder is the folder of config.json: the one that is named, or that of its newest checkpoint.
func folder(from string) (string, error) {
	if filepath.Base(from) == checkpoint.ConfigName {
		from = filepath.Dir(from)
	}
	st, err := os.Stat(from)
	switch {
	case err != nil:
		return "", fileError(from, err)
	case !st.IsDir():
		return "", one(from, "", "is a file, expected a folder of Hugging Face, a checkpoint or a reference case (NAME.json)")
	}
	return checkpoint.Latest(from)
}
