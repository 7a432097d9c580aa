package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/run"
)

func TestSplit(t *testing.T) {
	files, overrides := split([]string{"a.yaml", "train.train_iters=3", "dir/b=c.yaml", "dataset.rows.0.valid=2", "./x.y=z", "name=x", "a-b.c=d", "model.x="})
	require.Equal(t, []string{"a.yaml", "dir/b=c.yaml", "./x.y=z", "name=x", "a-b.c=d"}, files)
	require.Equal(t, []string{"train.train_iters=3", "dataset.rows.0.valid=2", "model.x="}, overrides)
}

func TestFilesAndOverrides(t *testing.T) {
	_, _, err := filesAndOverrides("run", "scenario FILE", []string{"a.b=c"}, false)
	require.EqualError(t, err, "phalanx run: found no file, expected a scenario FILE, as in `phalanx run FILE`")
	_, _, err = filesAndOverrides("plan", "scenario FILE", []string{"a", "b"}, true)
	require.EqualError(t, err, "phalanx plan: found 2 files (a or b), expected one")
	_, _, err = filesAndOverrides("run", "scenario FILE", []string{"a", "train_iters=3"}, false)
	require.ErrorContains(t, err, `"train_iters=3" is no file and no override`)
	require.Equal(t, 2, exitCode(err))

	named := filepath.Join(t.TempDir(), "x=y")
	require.NoError(t, os.WriteFile(named, nil, 0o600))
	files, _, err := filesAndOverrides("run", "scenario FILE", []string{named}, false)
	require.NoError(t, err)
	require.Equal(t, []string{named}, files)
}

func TestNearest(t *testing.T) {
	verbs := []string{"bench", "plan", "run", "validate", "verify", "version"}
	for typed, want := range map[string]string{"rnu": "run", "vaildate": "validate", "verfy": "verify", "versoin": "version", "PLAN": "plan", "val": "validate", "train": "plan"} {
		require.Equal(t, want, nearest(typed, verbs), typed)
	}
}

func TestMistakes(t *testing.T) {
	require.Equal(t, 0, mistakes("run", "run"))
	require.Equal(t, 1, mistakes("rnu", "run"))
	require.Equal(t, 1, mistakes("rn", "run"))
	require.Equal(t, 3, mistakes("", "run"))
	require.Equal(t, 3, mistakes("kitten", "sitting"))
}

func TestBytesText(t *testing.T) {
	require.Equal(t, "0 B", bytesText(0))
	require.Equal(t, "1023 B", bytesText(1023))
	require.Equal(t, "1.5 KiB", bytesText(1536))
	require.Equal(t, "81.0 MiB", bytesText(81<<20))
	require.Equal(t, "2048.0 TiB", bytesText(1<<51))
}

func TestPlural(t *testing.T) {
	require.Equal(t, "0 steps", plural(0, "step"))
	require.Equal(t, "1 step", plural(1, "step"))
	require.Equal(t, "2 steps", plural(2, "step"))
}

func TestExitCodes(t *testing.T) {
	require.Equal(t, 0, exitCode(nil))
	require.Equal(t, 1, exitCode(errors.New("x")))
	require.Equal(t, 2, exitCode(config.Problems{{Message: "x"}}))
	require.Equal(t, 2, exitCode(usagef("x")))
	require.Equal(t, 3, exitCode(ended(run.ExitNotHeld)))
	require.NoError(t, ended(run.ExitHeld))
	require.Equal(t, 130, exitCode(context.Canceled))
	require.Equal(t, "phalanx: interrupted", errorText(context.Canceled))
	require.Empty(t, errorText(ended(3)))
}

func TestWorse(t *testing.T) {
	order := []int{0, 1, 3, 2, 130}
	for i, a := range order {
		for j, b := range order {
			require.Equal(t, order[max(i, j)], worse(a, b))
		}
	}
}

func TestFolderAndHeading(t *testing.T) {
	require.Empty(t, folder("", "a", 3))
	require.Equal(t, "out", folder("out", "a/b", 1))
	require.Equal(t, filepath.Join("out", "a", "b"), folder("out", "a/b", 2))
	require.Empty(t, heading(0, 1, "a"))
	require.Equal(t, "scenario 2 of 3: a", heading(1, 3, "a"))
}
