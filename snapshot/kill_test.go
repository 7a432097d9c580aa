package snapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The environment of a process of the kill test.
const (
	saverDir  = "PHALANX_TEST_SNAPSHOT_DIR"
	saverInc  = "PHALANX_TEST_SNAPSHOT_INC"
	saverFrom = "PHALANX_TEST_SNAPSHOT_FROM"
)

// stateAt is what the kill test saves at a step: some hundred KiB that follow from it.
func stateAt(step uint32) [][]byte {
	b := make([]byte, 1<<10+int(step%7)<<16)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], uint64(step)*0x9e3779b97f4a7c15+uint64(i))
	}
	return [][]byte{b, []byte(strconv.Itoa(int(step)))}
}

// saver saves snapshots until it is killed, and prints the steps that are durable.
func saver(dir string) {
	inc, _ := strconv.Atoi(os.Getenv(saverInc))
	from, _ := strconv.Atoi(os.Getenv(saverFrom))
	s, err := Open(dir, Options{Incarnation: uint32(inc), Build: 5})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for step := uint32(from); ; step++ {
		done := make(chan error)
		s.Save(step, stateAt(step), func(err error) {
			if err == nil {
				fmt.Println(step)
			}
			done <- err
		})
		if err := <-done; err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		s.Drop(step) // the one that is durable is enough
	}
}

// A process that saves is killed at any moment: there is a whole snapshot then, and it is the newest that was told durable or a
// newer one.
func TestKilledWriters(t *testing.T) {
	kills := 100
	if testing.Short() {
		kills = 10
	}
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	durable, halves := uint32(0), 0
	for i := range kills {
		told := killed(t, dir, i+1, durable+1, time.Duration(rng.IntN(8000))*time.Microsecond)
		for _, n := range names(t, dir) {
			if _, whole := parse(n); !whole {
				halves++
			}
		}
		s, err := Open(dir, Options{Incarnation: uint32(kills + 1), Build: 5})
		require.NoError(t, err)
		steps := s.List()
		require.NotEmpty(t, steps)
		newest := steps[len(steps)-1]
		require.GreaterOrEqual(t, newest, max(durable, told), "kill %d", i)
		for _, step := range steps {
			sections, err := s.Sections(step)
			require.NoError(t, err)
			require.True(t, bytes.Equal(stateAt(step)[0], sections[0]))
			require.Equal(t, stateAt(step)[1], sections[1])
		}
		s.Close()
		durable = newest
	}
	require.Positive(t, halves, "no writer was killed in the middle of a file: the test does not test")
	t.Logf("%d kills, %d of them in the middle of a file, %d steps", kills, halves, durable)
}

// killed starts a process that saves, kills it some time after its first snapshot, and returns the last step that it told.
func killed(t *testing.T, dir string, inc int, from uint32, after time.Duration) (told uint32) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), saverDir+"="+dir, fmt.Sprintf("%s=%d", saverInc, inc), fmt.Sprintf("%s=%d", saverFrom, from))
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	first, err := strconv.Atoi(line[:len(line)-1])
	require.NoError(t, err, line)
	told = uint32(first)
	time.Sleep(after)
	require.NoError(t, c.Process.Kill())
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		n, err := strconv.Atoi(line[:len(line)-1])
		require.NoError(t, err, line)
		told = uint32(n)
	}
	require.Error(t, c.Wait(), "it was killed")
	return told
}
