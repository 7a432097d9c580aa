package checkpoint

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/internal/disk"
	"phalanx/nn"
	"phalanx/tensor"
	"phalanx/train"
)

// BlockBytes is the length of the blocks that have a checksum: large enough that the table is small, small enough that a
// rank that needs a few rows reads little more than those.
const BlockBytes = 1 << 20

// Held is what a rank has of a tensor: the elements [From, From + len) of its shard, in memory.
type Held struct {
	Name  string
	Shape []int // of the whole tensor
	Shard nn.Shard
	From  int
	DType tensor.DType
	Data  []byte // a view of the caller's memory
}

// HeldOf is elements from on of a shard.
func HeldOf[T tensor.Float](name string, s *nn.Spec, from int, x []T) Held {
	return Held{Name: name, Shape: s.Shape, Shard: s.Shard, From: from, DType: tensor.DTypeOf[T](), Data: tensor.Bytes(x)}
}

// Part is one rank's share of a manifest: what it has written, and where it stands.
type Part struct {
	Rank     int
	Position train.Position
	File     InFile // without a name: the rank had nothing to write
	Tensors  []Record
}

// Encode is the part as bytes, for whoever merges them.
func (p *Part) Encode() ([]byte, error) { return json.Marshal(p) }

// DecodePart is the inverse.
func DecodePart(b []byte) (*Part, error) {
	var p Part
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("checkpoint: a rank's part of a manifest: %w", err)
	}
	return &p, nil
}

// Aside is the folder in which a checkpoint is written before it is whole.
func Aside(root string, iteration int) string { return IterationDir(root, iteration) + asideSuffix }

const asideSuffix = ".tmp"

// WriteRank writes what a rank holds into the folder aside and syncs it. Other ranks write beside it; Commit makes the
// checkpoint of all their parts. A failure of the machine is a *disk.WriteError.
func WriteRank(d disk.Disk, root string, rank int, at train.Position, held []Held) (*Part, error) {
	return writeRank(d, root, rank, at, held, BlockBytes)
}

func writeRank(d disk.Disk, root string, rank int, at train.Position, held []Held, block int) (*Part, error) {
	part := &Part{Rank: rank, Position: at}
	if len(held) == 0 {
		return part, nil
	}
	dir := Aside(root, at.Iteration)
	if err := d.MkdirAll(dir); err != nil {
		return nil, disk.Failed(dir, "create folder", 0, err)
	}
	order := slices.SortedFunc(slices.Values(held), func(a, b Held) int { return strings.Compare(a.key(), b.key()) })
	infos := make([]Info, len(order))
	for i, h := range order {
		infos[i] = h.info()
		if err := place(infos, i); err != nil {
			return nil, err
		}
	}
	head := header(infos, map[string]string{"format": "pt"})
	name := fmt.Sprintf("rank_%05d.safetensors", rank)
	part.File = InFile{Name: name, Bytes: int64(len(head)) + infos[len(infos)-1].To}
	err := disk.WriteFile(d, filepath.Join(dir, name), part.File.Bytes, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		for _, h := range order {
			if _, err := w.Write(h.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, h := range order {
		part.Tensors = append(part.Tensors, h.record(name, block)) // several of one tensor if the rank has several ranges
	}
	return part, nil
}

// key is the name of the elements in the rank's file: the tensor's, and where they begin if they are not the whole shard.
func (h *Held) key() string {
	spec := nn.Spec{Shape: h.Shape, Shard: h.Shard}
	if len(h.Data)/h.DType.Size() == spec.Local() {
		return h.Name
	}
	return fmt.Sprintf("%s@%d", h.Name, h.From)
}

// info is how the elements stand in the rank's file.
func (h *Held) info() Info {
	n := len(h.Data) / h.DType.Size()
	return Info{Name: h.key(), DType: h.DType.String(), Shape: pieceShape(h.Shape, h.Shard, n)}
}

// pieceShape is the shape under which n elements of a shard stand in a file: the shard's if they are all of it.
func pieceShape(whole []int, shard nn.Shard, n int) []int {
	spec := nn.Spec{Shape: whole, Shard: shard}
	if n == spec.Local() {
		return spec.LocalShape()
	}
	return []int{n}
}

// record is the tensor with this one piece.
func (h *Held) record(file string, block int) Record {
	n := len(h.Data) / h.DType.Size()
	var sums []byte
	for from := 0; from < len(h.Data); from += block {
		sums = fmt.Appendf(sums, "%08x", crc32.Checksum(h.Data[from:min(from+block, len(h.Data))], castagnoli))
	}
	dim := h.Shard.Dim
	if h.Shard.Parts == 1 {
		dim = 0
	}
	return Record{Name: h.Name, DType: h.DType.String(), Shape: h.Shape, Dim: dim, Parts: h.Shard.Parts,
		Pieces: []Piece{{File: file, Key: h.key(), Index: h.Shard.Index, From: h.From, To: h.From + n, CRC32C: string(sums)}}}
}
