package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"phalanx/internal/disk"
)

// LatestName is the file of a checkpoint folder that names the iteration of the newest whole checkpoint, as Megatron's.
const LatestName = "latest_checkpointed_iteration.txt"

// IterationDir is the folder of one iteration's checkpoint below dir, as Megatron's.
func IterationDir(dir string, iteration int) string {
	return filepath.Join(dir, fmt.Sprintf("iter_%07d", iteration))
}

// WriteLatest says that an iteration's checkpoint is whole. The file is written aside and renamed.
func WriteLatest(dir string, iteration int) error { return writeLatest(disk.OS{}, dir, iteration) }

func writeLatest(d disk.Disk, dir string, iteration int) error {
	return disk.ReplaceBytes(d, filepath.Join(dir, LatestName), []byte(strconv.Itoa(iteration)+"\n"))
}

// Latest is the folder of the newest checkpoint below dir, or dir itself if it does not keep several.
func Latest(dir string) (string, error) {
	path := filepath.Join(dir, LatestName)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || err != nil && isFile(dir) {
		return dir, nil
	}
	if err != nil {
		return "", openError(path, err)
	}
	text := strings.TrimSpace(string(raw))
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return "", &FormatError{Path: path, Kind: ErrFormat, Found: fmt.Sprintf("%.20q", text), Expected: "the number of an iteration"}
	}
	return whole(IterationDir(dir, n)), nil
}

// whole is the folder of an iteration, or the one that was on its way to be replaced by a new one when a run was killed.
func whole(dir string) string {
	if !isDir(dir) && isDir(dir+oldSuffix) {
		return dir + oldSuffix
	}
	return dir
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && !st.IsDir()
}
