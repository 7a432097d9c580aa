package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/nn"
	"phalanx/train"
)

// twoRanks is a checkpoint of two tensors on two ranks, and its folder.
func twoRanks(t *testing.T) (string, []wholeTensor) {
	first, _ := versions()
	dir, err := saveTensors(t, hasty{}, t.TempDir(), train.Position{Iteration: 10, Samples: 80, Updates: 10}, 16, first,
		[]layoutOf{{0, 2, []int{16}}, {0, 1, []int{6}}})
	require.NoError(t, err)
	return dir, first
}

func readAll(dir string, tensors []wholeTensor) error {
	s, err := OpenSharded(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, w := range tensors {
		if _, err := s.Float64s(w.name); err != nil {
			return err
		}
	}
	return nil
}

// TestEveryByteIsGuarded: whatever bit of whatever file changes, reading the whole checkpoint is refused, and the refusal
// names the file. A file's own metadata says nothing about tensors and is not read.
func TestEveryByteIsGuarded(t *testing.T) {
	dir, tensors := twoRanks(t)
	for _, name := range []string{ManifestName, "rank_00000.safetensors", "rank_00001.safetensors"} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		meta := bytes.Index(whole, []byte(`"__metadata__":{"format":"pt"}`))
		for i := range whole {
			if meta >= 0 && i >= meta && i < meta+len(`"__metadata__":{"format":"pt"}`) {
				continue
			}
			for _, bit := range []byte{1, 0x20} {
				b := bytes.Clone(whole)
				b[i] ^= bit
				require.NoError(t, os.WriteFile(path, b, 0o600))
				err := readAll(dir, tensors)
				var fe *FormatError
				require.True(t, errors.As(err, &fe), "%s byte %d bit %x: %v", name, i, bit, err)
				require.Contains(t, fe.Path, name)
			}
		}
		require.NoError(t, os.WriteFile(path, whole, 0o600))
	}
	require.NoError(t, readAll(dir, tensors))
}

// TestTornCheckpoints: files that are cut, missing or exchanged are refused with the file and the tensor.
func TestTornCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   []string
		kind   error
	}{
		"no file": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "rank_00001.safetensors")))
		}, []string{"rank_00001.safetensors", `tensor "a"`, "found no file"}, ErrTruncated},
		"cut": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, "rank_00000.safetensors"), 100))
		}, []string{"rank_00000.safetensors", `tensor "a"`, "found 100 bytes"}, ErrTruncated},
		"a value changed": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "rank_00001.safetensors")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			b[len(b)-1] ^= 4
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}, []string{"rank_00001.safetensors", `tensor "a"`, "corrupt data", "load an older checkpoint"}, ErrCorrupt},
		"ranks exchanged": {func(t *testing.T, dir string) {
			a, b := filepath.Join(dir, "rank_00000.safetensors"), filepath.Join(dir, "rank_00001.safetensors")
			x, err := os.ReadFile(b)
			require.NoError(t, err)
			y, err := os.ReadFile(a)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(b, append(x, make([]byte, 0)...), 0o600))
			require.NoError(t, os.WriteFile(a, x, 0o600))
			require.NoError(t, os.WriteFile(b, y, 0o600))
		}, []string{"rank_0000", "found", "as the manifest has it"}, ErrTruncated},
		"manifest cut": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, ManifestName), 200))
		}, []string{"manifest.json", "torn or was changed"}, ErrManifest},
		"manifest empty": {func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, ManifestName), 0))
		}, []string{"manifest.json", "found 0 bytes"}, ErrManifest},
		"a later version": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, ManifestName)
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, bytes.Replace(b, []byte(`"version": 1`), []byte(`"version": 2`), 1), 0o600))
		}, []string{"found version 2, expected version 1; use the program that wrote it"}, ErrManifest},
	} {
		t.Run(name, func(t *testing.T) {
			dir, tensors := twoRanks(t)
			c.damage(t, dir)
			err := readAll(dir, tensors)
			require.ErrorIs(t, err, c.kind)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

// TestUnknownAndMisfit: what a reader asks for and the checkpoint does not have as such is refused by name.
func TestUnknownAndMisfit(t *testing.T) {
	dir, _ := twoRanks(t)
	s, err := OpenSharded(dir)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, []string{"a", "b"}, s.Names())
	require.True(t, s.Has("a"))
	require.False(t, s.Has("exp_avg/a"))
	_, err = s.Float64s("c")
	require.ErrorIs(t, err, ErrNoTensor)
	require.ErrorContains(t, err, `tensor "c": found 2 tensors, none of this name`)
	err = Read(s, "a", &nn.Spec{Name: "a", Shape: []int{4, 8}, Shard: nn.Unsharded}, 0, make([]float32, 32))
	require.ErrorIs(t, err, ErrMismatch)
	require.ErrorContains(t, err, "found shape [8 4], expected [4 8] as the scenario's model has it")
}

// TestCommitRefusesHalfAModel: parts that do not make up the tensors leave nothing under a checkpoint's name.
func TestCommitRefusesHalfAModel(t *testing.T) {
	at := train.Position{Iteration: 5}
	spec := func(index int) *nn.Spec {
		return &nn.Spec{Name: "a", Shape: []int{4}, Shard: nn.Shard{Dim: 0, Parts: 2, Index: index}}
	}
	x := []float32{1, 2}
	for name, c := range map[string]struct {
		held [][]Held
		want string
	}{
		"a shard is missing": {[][]Held{{HeldOf("a", spec(0), 0, x)}}, `tensor "a": found pieces up to element 2 of shard 0, expected all 2 elements of shards 0 to 1`},
		"a range is missing": {[][]Held{{HeldOf("a", spec(0), 1, x[:1])}, {HeldOf("a", spec(1), 0, x)}}, "found elements 1 to 2 of shard 0 in rank_00000.safetensors, expected elements from 0 of shard 0"},
		"a shard twice":      {[][]Held{{HeldOf("a", spec(0), 0, x)}, {HeldOf("a", spec(0), 0, x)}}, "found elements 0 to 2 of shard 0 in rank_00001.safetensors, expected elements from 0 of shard 1"},
		"cut differently":    {[][]Held{{HeldOf("a", spec(0), 0, x)}, {HeldOf("a", &nn.Spec{Name: "a", Shape: []int{4}, Shard: nn.Unsharded}, 0, append(x, x...))}}, "tensor a: rank 1 has F32 [4] in 1 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			var parts []*Part
			for rank, held := range c.held {
				part, err := WriteRank(hasty{}, root, rank, at, held)
				require.NoError(t, err)
				parts = append(parts, part)
			}
			_, err := Commit(hasty{}, root, manifestOf(at, BlockBytes), parts)
			require.ErrorContains(t, err, c.want)
			entries, err := os.ReadDir(root)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
	part, err := WriteRank(hasty{}, t.TempDir(), 3, train.Position{Iteration: 5, Samples: 1}, nil)
	require.NoError(t, err)
	_, err = Commit(hasty{}, t.TempDir(), manifestOf(at, BlockBytes), []*Part{part})
	require.ErrorContains(t, err, "rank 3 stands at {Iteration:5 Samples:1 Updates:0}, expected {Iteration:5 Samples:0 Updates:0}")
	_, err = DecodePart([]byte("{"))
	require.ErrorContains(t, err, "a rank's part")
}

func TestPruneAndTidy(t *testing.T) {
	root := t.TempDir()
	first, _ := versions()
	for _, n := range []int{10, 20, 30, 40} {
		_, err := saveTensors(t, hasty{}, root, train.Position{Iteration: n}, 16, first, cuts)
		require.NoError(t, err)
	}
	list := func() []string {
		entries, err := os.ReadDir(root)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "iter_0000005.tmp", "x"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "iter_0000007.old"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "iter_0000010.old"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "notes.tmp"), 0o700))
	require.NoError(t, Tidy(hasty{}, root))
	require.Equal(t, []string{"iter_0000007", "iter_0000010", "iter_0000020", "iter_0000030", "iter_0000040", LatestName, "notes.tmp"}, list())
	require.NoError(t, Prune(hasty{}, root, 30, 0, ""))
	require.Len(t, list(), 7, "0 keeps all")
	require.NoError(t, Prune(hasty{}, root, 30, 2, filepath.Join(root, "iter_0000010")))
	require.Equal(t, []string{"iter_0000010", "iter_0000020", "iter_0000030", "iter_0000040", LatestName, "notes.tmp"}, list(),
		"the newest two, the one in use, and a later one of another run")
	require.NoError(t, Prune(hasty{}, root, 40, 1, ""))
	require.Equal(t, []string{"iter_0000040", LatestName, "notes.tmp"}, list())
	require.NoError(t, Tidy(hasty{}, filepath.Join(root, "nothing")))
}

// FuzzDecodeManifest: no input panics or is taken for another; what is accepted is whole and reads back the same.
func FuzzDecodeManifest(f *testing.F) {
	m := manifestOf(train.Position{Iteration: 3}, 16)
	m.Files = []InFile{{"rank_00000.safetensors", 10}}
	m.Tensors = []Record{{Name: "a", DType: "F32", Shape: []int{2, 2}, Dim: 1, Parts: 2, Pieces: []Piece{
		{"rank_00000.safetensors", "a@0", 0, 0, 2, "00000000"}, {"rank_00000.safetensors", "a", 1, 0, 2, "89abcdef"}}}}
	good, err := m.Encode()
	require.NoError(f, err)
	_, err = DecodeManifest(good, "m")
	require.NoError(f, err)
	f.Add(good[:len(good)-sealBytes])
	f.Add([]byte("{\n"))
	f.Add([]byte(`{"version":2}`))
	f.Add(bytes.Replace(good[:len(good)-sealBytes], []byte("[2,2]"), []byte("[9223372036854775807,2]"), 1))
	f.Add(bytes.Replace(good[:len(good)-sealBytes], []byte(`"parts":2`), []byte(`"parts":0`), 1))
	f.Add(bytes.Replace(good[:len(good)-sealBytes], []byte(`"dim":1`), []byte(`"dim":-1`), 1))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, b := range [][]byte{body, resealed(body)} {
			m, err := DecodeManifest(b, "m")
			if err != nil {
				var fe *FormatError
				require.True(t, errors.As(err, &fe), "%v", err)
				continue
			}
			again, err := m.Encode()
			require.NoError(t, err)
			require.Equal(t, string(b), string(again))
			for _, r := range m.Tensors {
				n := 0
				for _, p := range r.Pieces {
					n += p.To - p.From
				}
				spec := nn.Spec{Shape: r.Shape, Shard: nn.Unsharded}
				require.Equal(t, spec.Elements(), n)
			}
			require.True(t, json.Valid(b))
		}
	})
}

// resealed is a manifest with a checksum that fits.
func resealed(body []byte) []byte {
	return fmt.Appendf(bytes.Clone(body), seal, crc32.Checksum(body, castagnoli))
}

// config.json stands beside the manifest for readers. One that was changed or is gone is refused: whoever exports a model
// would take its word for what the weights mean. White space does not count.
func TestConfigMustAgreeWithTheManifest(t *testing.T) {
	dir, _ := twoRanks(t)
	path := filepath.Join(dir, ConfigName)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	open := func() error {
		s, err := OpenSharded(dir)
		if err == nil {
			return s.Close()
		}
		return err
	}
	require.NoError(t, os.WriteFile(path, append([]byte("\n "), good...), 0o644))
	require.NoError(t, open())
	for _, b := range [][]byte{nil, []byte("{}"), good[:len(good)/2], append(good[:len(good)-2:len(good)-2], []byte(`, "rotary_base": 5}`)...)} {
		require.NoError(t, os.WriteFile(path, b, 0o644))
		require.ErrorIs(t, open(), ErrCorrupt, "%q", b)
	}
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, open(), ErrCorrupt)
}
