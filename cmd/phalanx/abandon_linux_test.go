package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run whose processes and server stand still cannot end them in the time an interrupt has. It ends nevertheless, they with it,
// and nothing is left in the folder for temporary files.
func TestInterruptOfProcessesThatStandStill(t *testing.T) {
	temp := t.TempDir()
	cmd := startLongRun(t, func(c *exec.Cmd) { c.Env = append(os.Environ(), "TMPDIR="+temp) }, "--procs", "2")
	children, err := exec.Command("pgrep", "-P", strconv.Itoa(cmd.Process.Pid)).Output()
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(children)), 3, "two workers and a server")
	for _, c := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(c)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Eventually(t, func() bool { return exec.Command("pgrep", "-f", temp).Run() != nil }, interruptLimit, interruptLimit/100, "processes are left")
}
