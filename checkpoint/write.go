package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"phalanx/config"
	"phalanx/internal/disk"
)

// Save writes weights and their config.json into a folder, which is made if need be.
func Save(dir string, m *config.Model, tensors []Tensor, metadata map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return disk.Failed(dir, "create folder", 0, err)
	}
	if err := WriteConfig(dir, m); err != nil {
		return err
	}
	return Write(filepath.Join(dir, WeightsName), tensors, metadata)
}

// Write writes a safetensors file: names ascending, in the header and in the data, so that equal tensors give equal
// files; the header padded with spaces to a multiple of 8 bytes. The file is written aside, synced and renamed: a
// reader and a crash see the old file or the new one, whole. A failure of the machine is a *disk.WriteError.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	order, err := sorted(tensors)
	if err != nil {
		return err
	}
	infos, data := make([]Info, len(order)), make(map[string][]byte, len(order))
	for i, t := range order {
		infos[i] = Info{Name: t.Name, DType: t.DType.String(), Shape: t.Shape}
		data[t.Name] = t.Data
	}
	return WriteStream(path, infos, metadata, func(w io.Writer, name string) error {
		_, err := w.Write(data[name])
		return err
	})
}

// header is the length prefix and the JSON, without any data. tensors are sorted and placed.
func header(tensors []Info, metadata map[string]string) []byte {
	b := append(make([]byte, prefixBytes), '{')
	if len(metadata) > 0 {
		b = append(b, quoted(metadataKey)+":{"...)
		for i, k := range slices.Sorted(maps.Keys(metadata)) {
			b = append(b, comma(i)+quoted(k)+":"+quoted(metadata[k])...)
		}
		b = append(b, '}')
	}
	for i, t := range tensors {
		b = append(b, comma(i+len(metadata))...)
		b = fmt.Appendf(b, `%s:{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}`,
			quoted(t.Name), t.DType, joined(t.Shape), t.From, t.To)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-prefixBytes))
	return b
}

// written is where Write writes; tests put in one that fails.
var written disk.Disk = disk.OS{}

// replace writes a file of size bytes aside, syncs it, puts it in the place of path and syncs the folder.
func replace(path string, size int64, fill func(io.Writer) error) error {
	return disk.Replace(written, path, size, fill)
}

// quoted is a JSON string. Marshalling a string cannot fail.
func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func joined(shape []int) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		parts[i] = strconv.Itoa(d)
	}
	return strings.Join(parts, ",")
}

func comma(i int) string {
	if i > 0 {
		return ","
	}
	return ""
}
