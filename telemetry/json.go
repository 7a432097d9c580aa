package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// JSON writes values as JSON lines. The file is opened before anything runs, so that a path that cannot be written
// is told at once, and every value is written when it is there. A nil JSON does nothing.
type JSON struct {
	name string
	out  io.Writer
	file *os.File // nil: not ours to close
}

// OpenJSON opens path for JSON lines; "-" is stdout and "" is nil.
func OpenJSON(path string, stdout io.Writer) (*JSON, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return &JSON{name: "standard output", out: stdout}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("the JSON file cannot be written: %w; expected a file in a folder that exists, or - for standard output", err)
	}
	return &JSON{name: path, out: f, file: f}, nil
}

// Write writes v on a line of its own.
func (j *JSON) Write(v any) error {
	if j == nil {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("a result has no JSON: %w", err)
	}
	if _, err := j.out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing JSON to %s: %w", j.name, err)
	}
	return nil
}

// Close closes the file, if it is one.
func (j *JSON) Close() error {
	if j == nil || j.file == nil {
		return nil
	}
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("writing JSON to %s: %w", j.name, err)
	}
	return nil
}
