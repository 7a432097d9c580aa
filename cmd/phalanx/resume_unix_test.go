//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecondSignalEndsAtOnce: whoever asks twice does not wait for a checkpoint, not even for one that never ends.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Run("one process", func(t *testing.T) { secondSignal(t) })
	t.Run("two processes", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts processes")
		}
		secondSignal(t, "--procs", "2")
	})
}

func secondSignal(t *testing.T, procs ...string) {
	file, save := longFile(t)
	require.NoError(t, os.MkdirAll(filepath.Join(save, "iter_0000001.tmp", "x"), 0o700))
	cmd, _, rest := started(t, "iteration        1/", append([]string{"run", file, "checkpoint.save=" + save}, procs...)...)
	require.NoDirExists(t, filepath.Join(save, "iter_0000001.tmp"), "what a killed run has left is put away")
	require.NoError(t, syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP)) // both signals are there before it can answer
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, syscall.Kill(cmd.Process.Pid, syscall.SIGCONT))
	<-rest
	require.Equal(t, 130, exitOf(t, cmd))
}
