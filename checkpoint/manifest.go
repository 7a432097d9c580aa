package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"phalanx/train"
)

// ManifestName is the file of a checkpoint folder that says what the other files hold.
const ManifestName = "manifest.json"

// ManifestVersion is the version of the manifest that this program writes and reads.
const ManifestVersion = 1

// Manifest is the table of contents of a sharded checkpoint. Every tensor of the whole model stands in it once, with the
// pieces that ranks have written of it.
type Manifest struct {
	Version        int    `json:"version"`
	Scenario       string `json:"scenario"` // its name
	train.Position `json:"position"`
	Seed           uint64          `json:"seed"`   // of random draws, which are pure functions of it and the iteration
	Layout         Layout          `json:"layout"` // that wrote it; any other can read it
	Model          json.RawMessage `json:"model"`  // the keys of config.json: what the weights mean
	Source         string          `json:"source"` // the whole scenario, normalised
	// BlockBytes is the length of the blocks of a piece that have a checksum each.
	BlockBytes int      `json:"block_bytes"`
	Files      []InFile `json:"files"`
	Tensors    []Record `json:"tensors"` // ascending by name
}

// Layout is how a run was cut.
type Layout struct {
	TP  int `json:"tensor_model_parallel_size"`
	CP  int `json:"context_parallel_size"`
	DP  int `json:"data_parallel_size"`
	PP  int `json:"pipeline_model_parallel_size"`
	EP  int `json:"expert_model_parallel_size"`
	ETP int `json:"expert_tensor_parallel_size"`
}

// InFile is a file of the folder.
type InFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Record is a tensor of the whole model: the weight NAME, or exp_avg/NAME and exp_avg_sq/NAME, its moments. It is cut
// into Parts equal shards along Dim.
type Record struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"`
	Shape  []int   `json:"shape"`
	Dim    int     `json:"dim"`
	Parts  int     `json:"parts"`
	Pieces []Piece `json:"pieces"` // ascending by shard and range; together they are the tensor
}

// Piece is the elements [From, To) of shard Index, in row-major order of the shard's shape, as a tensor of a file.
type Piece struct {
	File  string `json:"file"`
	Key   string `json:"key"` // its name in the file
	Index int    `json:"index"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	// CRC32C is the Castagnoli checksums of the piece's blocks, eight hexadecimal digits each.
	CRC32C string `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal ends a manifest: the checksum of everything before this line.
const seal = "  \"crc32c\": \"%08x\"\n}\n"

var sealBytes = len(fmt.Sprintf(seal, 0))

// Encode is the manifest as text: one key a line, one tensor a line, and the checksum of all that. Equal manifests are
// equal text.
func (m *Manifest) Encode() ([]byte, error) {
	b := []byte("{\n")
	for _, f := range []struct {
		key   string
		value any
	}{
		{"version", m.Version}, {"scenario", m.Scenario}, {"position", m.Position}, {"seed", m.Seed}, {"layout", m.Layout},
		{"model", m.Model}, {"source", m.Source}, {"block_bytes", m.BlockBytes}, {"files", m.Files},
	} {
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: key %s: %w", ManifestName, f.key, err)
		}
		b = fmt.Appendf(b, "  %q: %s,\n", f.key, value)
	}
	b = append(b, "  \"tensors\": ["...)
	for i, t := range m.Tensors {
		line, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: tensor %s: %w", ManifestName, t.Name, err)
		}
		b = fmt.Appendf(b, "%s\n    %s", comma(i), line)
	}
	b = append(b, "\n  ],\n"...)
	return fmt.Appendf(b, seal, crc32.Checksum(b, castagnoli)), nil
}

// sealed is the manifest as it is decoded: with the line that Encode puts below it.
type sealed struct {
	Manifest
	CRC32C string `json:"crc32c"`
}

// DecodeManifest reads what Encode has written, and nothing else: any other byte is a *FormatError.
func DecodeManifest(b []byte, path string) (*Manifest, error) {
	bad := func(found, expected string) error {
		return &FormatError{Path: path, Kind: ErrManifest, Found: found, Expected: expected}
	}
	if len(b) < sealBytes {
		return nil, bad(fmt.Sprintf("%d bytes", len(b)), "a manifest that ends with its checksum")
	}
	body, end := b[:len(b)-sealBytes], b[len(b)-sealBytes:]
	if want := fmt.Sprintf(seal, crc32.Checksum(body, castagnoli)); string(end) != want {
		if v := versionOf(b); v != ManifestVersion && v != 0 {
			return nil, bad(fmt.Sprintf("version %d", v), fmt.Sprintf("version %d; use the program that wrote it", ManifestVersion))
		}
		return nil, bad(fmt.Sprintf("the end %.80q", end), fmt.Sprintf("%q: the manifest is torn or was changed; load an older checkpoint", want))
	}
	var s sealed
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, bad(err.Error(), "the manifest of a checkpoint")
	}
	m := &s.Manifest
	if err := m.check(path); err != nil {
		return nil, err
	}
	if again, err := m.Encode(); err != nil || !bytes.Equal(again, b) {
		return nil, bad("a manifest that this program would write differently", "its text unchanged")
	}
	return m, nil
}

// versionOf is the version that a manifest of another program states; 0 if it states none.
func versionOf(b []byte) int {
	var v struct{ Version int }
	if json.Unmarshal(b, &v) != nil {
		return 0
	}
	return v.Version
}
