package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger writes warnings to stderr, everything with -v, and to more as well if it is not nil. It never writes colour:
// logs are read in files as often as on terminals.
func (a *app) logger(more io.Writer) *zap.Logger {
	level := zapcore.WarnLevel
	if a.verbose {
		level = zapcore.DebugLevel
	}
	core := textCore(a.logs(), level)
	if more != nil {
		core = zapcore.NewTee(core, textCore(more, zapcore.InfoLevel))
	}
	return zap.New(core)
}

func textCore(w io.Writer, level zapcore.Level) zapcore.Core {
	c := zap.NewDevelopmentEncoderConfig()
	c.EncodeLevel = zapcore.CapitalLevelEncoder
	c.CallerKey, c.StacktraceKey = zapcore.OmitKey, zapcore.OmitKey
	return zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.Lock(zapcore.AddSync(w)), level)
}

// outDir is what --out keeps of one scenario: console.log, phalanx.log and report.json. The zero value keeps nothing.
type outDir struct {
	dir     string
	console *os.File
	log     *os.File
	copy    *copied // console lines on their way to console; nil: there is none
}

// newOutDir makes the folder and opens its files.
func newOutDir(dir string) (*outDir, error) {
	if dir == "" {
		return &outDir{}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, usagef("--out: cannot make the folder: %v; expected a folder that can be written", err)
	}
	o := &outDir{dir: dir}
	var err error
	if o.console, err = os.Create(filepath.Join(dir, "console.log")); err != nil {
		return nil, usagef("--out: %v; expected a folder that can be written", err)
	}
	if o.log, err = os.Create(filepath.Join(dir, "phalanx.log")); err != nil {
		o.close()
		return nil, usagef("--out: %v; expected a folder that can be written", err)
	}
	return o, nil
}

// lines is where console lines go.
func (o *outDir) lines(w io.Writer) io.Writer {
	if o.console == nil {
		return w
	}
	o.copy = &copied{to: w, copy: o.console}
	return o.copy
}

// lost is why console.log is not whole; nil: it is.
func (o *outDir) lost() error {
	if o.copy == nil || o.copy.err == nil {
		return nil
	}
	return fmt.Errorf("--out: console.log ends early, standard output went on: %w", o.copy.err)
}

// copied writes everything to one writer and as much as can be written to another: a full disk under the copy takes nothing
// from the first.
type copied struct {
	to, copy io.Writer
	err      error // the first of copy, to which nothing is written any more
}

// Write implements io.Writer. The error is that of the first writer.
func (c *copied) Write(p []byte) (int, error) {
	if c.err == nil {
		_, c.err = c.copy.Write(p)
	}
	return c.to.Write(p)
}

// logs is where logs go besides stderr; nil is nowhere.
func (o *outDir) logs() io.Writer {
	if o.log == nil {
		return nil
	}
	return o.log
}

func (o *outDir) close() {
	for _, f := range []*os.File{o.console, o.log} {
		if f != nil {
			f.Close()
		}
	}
}
