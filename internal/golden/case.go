// Package golden reads the reference cases: NAME.json (configuration, optimizer, scalars per step) beside
// NAME.safetensors (weights, batches, expected tensors). The folder cases/ has them with their README.
//
// Shapes: b microbatch rows, s sequence, h hidden, V vocabulary, E experts. Ids and masks are [b, s].
package golden

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"phalanx/checkpoint"
)

// jsonBytesMax bounds NAME.json; the largest case has 75 kB.
const jsonBytesMax = 16 << 20

// Case is one reference case. Tensors are read from the open file when asked for; Close closes it.
type Case struct {
	Path  string // of NAME.json
	Name  string
	About string
	// Config has Megatron-Core's keys. Numbers are int where the file has a whole number, else float64; null is nil.
	Config           map[string]any
	Optimizer        map[string]any
	DataParallelSize int
	Steps            []Step

	file *checkpoint.File
}

// Step is what one optimizer step has to give.
type Step struct {
	Objective    float64 // the scalar whose gradient is taken
	GradNorm     float64 // before clipping
	Microbatches []Scalars
}

// Scalars is what one microbatch has to give. Layers count decoder layers, then depths.
type Scalars struct {
	CuSeqlens       []int // logical document ends; nil: not packed
	CuSeqlensPadded []int // physical, where they differ
	LMLossSum       float64
	LMTokens        int64
	MTPLossSum      []float64                  // [k-1] of depth k
	MTPTokens       []int64                    // [k-1] of depth k
	Aux             map[string]map[int]float64 // by type (aux_loss, z_loss, …) and layer, without its coefficient
	TokensPerExpert map[int][]int64            // by layer: valid tokens of the executed map
}

// Error is a case that is not what it has to be (exit 2).
type Error struct {
	Path   string
	Reason string // what was found and what was expected
	Err    error  // nil, or the cause
}

// Error reads `PATH: reason`.
func (e *Error) Error() string { return e.Path + ": " + e.Reason }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Load reads NAME.json and opens NAME.safetensors beside it, and checks that the two agree. Close the case when done.
func Load(path string) (*Case, error) {
	raw, err := readJSON(path)
	if err != nil {
		return nil, err
	}
	c := &Case{Path: path}
	if err := c.decode(raw); err != nil {
		return nil, err
	}
	weights := strings.TrimSuffix(path, ".json") + ".safetensors"
	if c.file, err = checkpoint.Open(weights); err != nil {
		return nil, &Error{Path: path, Reason: "its tensors: " + err.Error(), Err: err}
	}
	if err := c.check(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the tensors' file.
func (c *Case) Close() error { return c.file.Close() }

// Cases is the names of the cases in a folder, ascending: every NAME.json that has a NAME.safetensors.
func Cases(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &Error{Path: dir, Reason: "the folder of reference cases cannot be read: " + plain(err), Err: err}
	}
	var names []string
	for _, e := range entries {
		name, isJSON := strings.CutSuffix(e.Name(), ".json")
		if !isJSON {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, name+".safetensors")); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Dir is the folder of the cases of this module, found upwards from the working directory; for tests.
func Dir() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		dir := filepath.Join(at, "internal", "golden", "cases")
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("golden: no internal/golden/cases above the working directory: run inside the module")
		}
		at = up
	}
}

func readJSON(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".json") {
		return nil, &Error{Path: path, Reason: "a reference case is named by its .json file, with the .safetensors beside it"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{Path: path, Reason: plain(err), Err: err}
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, jsonBytesMax+1))
	switch {
	case err != nil:
		return nil, &Error{Path: path, Reason: plain(err), Err: err}
	case len(raw) > jsonBytesMax:
		return nil, &Error{Path: path,
			Reason: fmt.Sprintf("found more than %d bytes, expected a case's configuration", jsonBytesMax)}
	}
	return raw, nil
}

// plain is an error of the file system without the path, which is told anyway.
func plain(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
