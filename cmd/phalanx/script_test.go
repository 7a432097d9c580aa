package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"phalanx": main})
}

// TestScripts runs testdata/script: each is a session at a shell, with phalanx as a process of its own.
func TestScripts(t *testing.T) {
	cases, err := filepath.Abs(filepath.Join("..", "..", "internal", "golden", "cases"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("CASES", cases)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // under -race every process would wait a second at its end
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"truncate": truncate,
			"append":   appendBytes,
			"jsonhas":  jsonHas,
			"samehash": sameHash,
			"resident": resident,
		},
	})
}

// exits CODE ARG…: phalanx ARG… must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec("phalanx", args[1:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("phalanx %s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// truncate FILE BYTES cuts a file.
func truncate(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// appendBytes is append FILE HEX.
func appendBytes(ts *testscript.TestScript, _ bool, args []string) {
	more, err := hex.DecodeString(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), append([]byte(ts.ReadFile(args[0])), more...), 0o644))
}

// jsonHas is jsonhas FILE LINES KEY…: FILE (or stdout) has that many lines, each an object with exactly these keys
// besides those with a question mark, which it may have.
func jsonHas(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimRight(ts.ReadFile(args[0]), "\n"), "\n")
	if strconv.Itoa(len(lines)) != args[1] {
		ts.Fatalf("%s has %d lines, want %s", args[0], len(lines), args[1])
	}
	for _, line := range lines {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%s: not a JSON object: %v: %s", args[0], err, line)
		}
		for _, key := range args[2:] {
			if _, ok := object[key]; !ok && !strings.HasSuffix(key, "?") {
				ts.Fatalf("%s: no key %q in %s", args[0], key, line)
			}
		}
		for key := range object {
			if !slices.Contains(args[2:], key) && !slices.Contains(args[2:], key+"?") {
				ts.Fatalf("%s: unexpected key %q in %s", args[0], key, line)
			}
		}
	}
}

// sameHash is samehash FILE FILE: two results of run have the same weights.
func sameHash(ts *testscript.TestScript, _ bool, args []string) {
	var hashes [2]string
	for i, name := range args {
		var result struct {
			Weights string `json:"weights_sha256"`
		}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(name)), &result))
		hashes[i] = result.Weights
	}
	if hashes[0] == "" || hashes[0] != hashes[1] {
		ts.Fatalf("weights of %s are %q, of %s %q", args[0], hashes[0], args[1], hashes[1])
	}
}

// resident is resident PLAN RESULT PERCENT: the peak of the resident memory in the result of a run lies within so many
// percent of what the plan, as printed, says of the process.
func resident(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(`(?m)^memory     process: ([0-9.]+) MiB = `).FindStringSubmatch(ts.ReadFile(args[0]))
	if found == nil {
		ts.Fatalf("%s has no line of the memory of the process in MiB", args[0])
	}
	planned, err := strconv.ParseFloat(found[1], 64)
	ts.Check(err)
	var result struct {
		Peak float64 `json:"peak_rss_bytes"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &result))
	percent, err := strconv.ParseFloat(args[2], 64)
	ts.Check(err)
	peak := result.Peak / (1 << 20)
	ts.Logf("resident %.1f MiB, planned %.1f MiB", peak, planned)
	if result.Peak != 0 && math.Abs(peak/planned-1) > percent/100 { // 0: this system does not say
		ts.Fatalf("resident %.1f MiB, planned %.1f MiB: more than %g %% apart", peak, planned, percent)
	}
}
