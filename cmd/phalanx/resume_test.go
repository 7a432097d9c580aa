package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// started runs phalanx until it prints a line that contains a text, and reads on behind its back.
func started(t *testing.T, until string, args ...string) (cmd *exec.Cmd, stderr *lines, rest chan string) {
	t.Helper()
	cmd = exec.Command("phalanx", args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stderr = &lines{}
	cmd.Stderr = stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, until) {
			break
		}
	}
	rest = make(chan string, 1)
	go func() {
		var all strings.Builder
		for {
			line, err := r.ReadString('\n')
			all.WriteString(line)
			if err != nil {
				rest <- all.String()
				return
			}
		}
	}()
	return cmd, stderr, rest
}

func exitOf(t *testing.T, cmd *exec.Cmd) int {
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil {
		require.True(t, errors.As(err, &exit), "%v", err)
		return exit.ExitCode()
	}
	return 0
}

func longFile(t *testing.T) (file, save string) {
	dir := t.TempDir()
	file, save = filepath.Join(dir, "long.yaml"), filepath.Join(dir, "saved")
	require.NoError(t, os.WriteFile(file, []byte(longRun), 0o600))
	return file, save
}

// TestTermSavesAndResumes: SIGTERM ends a run that saves with 130 and a checkpoint of a whole step; --resume goes on from
// it, and the end is that of a run nobody interrupted. Ranks may be in processes of their own.
func TestTermSavesAndResumes(t *testing.T) {
	for name, procs := range map[string][]string{"one process": nil, "two processes": {"--procs", "2"}} {
		t.Run(name, func(t *testing.T) { termSavesAndResumes(t, procs) })
	}
}

func termSavesAndResumes(t *testing.T, procs []string) {
	if procs != nil && testing.Short() {
		t.Skip("starts processes")
	}
	file, save := longFile(t)
	cmd, stderr, rest := started(t, "iteration        3/", append([]string{"run", file, "checkpoint.save=" + save}, procs...)...)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	printed := <-rest
	require.Equal(t, 130, exitOf(t, cmd))
	require.Equal(t, "phalanx: interrupted; the step in progress ends with a checkpoint, a second interrupt ends at once\nphalanx: interrupted\n", string(*stderr))
	require.Contains(t, printed, "saved checkpoint step=")
	step, err := os.ReadFile(filepath.Join(save, "latest_checkpointed_iteration.txt"))
	require.NoError(t, err)
	done := strings.TrimSpace(string(step))
	require.Contains(t, printed, "saved checkpoint step="+done+" ")

	end := "train.train_iters=" + done + "1" // ten times as far, and one
	resumed, err := exec.Command("phalanx", "run", file, "--resume", "checkpoint.save="+save, end, "logger.log_interval=100000").Output()
	require.NoError(t, err)
	require.Contains(t, string(resumed), "loaded checkpoint step="+done)
	straight, err := exec.Command("phalanx", "run", file, end, "logger.log_interval=100000").Output()
	require.NoError(t, err)
	require.Equal(t, hashOf(t, straight), hashOf(t, resumed))
}

func hashOf(t *testing.T, out []byte) string {
	_, hash, found := strings.Cut(string(out), "| weights ")
	require.True(t, found, "%s", out)
	return hash
}

// TestKillWhileSaving: a run that is killed while it saves without a pause leaves a checkpoint that loads.
func TestKillWhileSaving(t *testing.T) {
	file, save := longFile(t)
	for range 3 {
		cmd, _, rest := started(t, "saved checkpoint step=", "run", file, "--resume", "checkpoint.save="+save, "checkpoint.save_interval=1", "checkpoint.most_recent_k=2")
		require.NoError(t, cmd.Process.Kill())
		<-rest
		_ = cmd.Wait()
	}
	step, err := os.ReadFile(filepath.Join(save, "latest_checkpointed_iteration.txt"))
	require.NoError(t, err)
	done := strings.TrimSpace(string(step))
	out, err := exec.Command("phalanx", "run", file, "checkpoint.load="+save, "train.train_iters="+done).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "loaded checkpoint step="+done)
	straight, err := exec.Command("phalanx", "run", file, "train.train_iters="+done).Output()
	require.NoError(t, err)
	require.Equal(t, hashOf(t, straight), hashOf(t, out))
}

func TestResumeNeedsAFolder(t *testing.T) {
	file, _ := longFile(t)
	cmd := exec.Command("phalanx", "run", file, "--resume")
	var stderr lines
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Equal(t, 2, exitOf(t, cmd))
	require.Contains(t, string(stderr), "--resume: long has no checkpoint.save")
}
