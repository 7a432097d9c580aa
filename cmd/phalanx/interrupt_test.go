package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// longRun trains for hours unless somebody stops it.
const longRun = `name: long
model: {num_layers: 1, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 32, padded_vocab_size: 32, tensor_model_parallel_size: 2}
train: {train_iters: 100000000, micro_batch_size: 1, dtype: fp64, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 8}
`

// interruptLimit is far above the second that an interrupt may take, for machines that do other things too.
const interruptLimit = 10 * time.Second

// startLongRun starts it and waits for its first step. It is killed with the test.
func startLongRun(t *testing.T, change func(*exec.Cmd), flags ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "long.yaml")
	require.NoError(t, os.WriteFile(file, []byte(longRun), 0o600))
	cmd := exec.Command("phalanx", append([]string{"run", file}, flags...)...)
	change(cmd)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	r := bufio.NewReader(out)
	first, err := r.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, first, "iteration        1/")
	go func() {
		for err == nil {
			_, err = r.ReadString('\n')
		}
	}()
	return cmd
}

func TestInterruptEndsARunWith130(t *testing.T) {
	var stderr lines
	cmd := startLongRun(t, func(c *exec.Cmd) { c.Stderr = &stderr })
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	var exit *exec.ExitError
	require.True(t, errors.As(cmd.Wait(), &exit))
	require.Equal(t, 130, exit.ExitCode())
	require.Less(t, time.Since(start), interruptLimit)
	require.Equal(t, "phalanx: interrupted\n", string(stderr))
}

// lines keeps what is written to it.
type lines []byte

func (l *lines) Write(p []byte) (int, error) {
	*l = append(*l, p...)
	return len(p), nil
}
