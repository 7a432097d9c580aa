package run

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"phalanx/actors"
	"phalanx/config"
)

// injected is a fault of rank 1.
func injected(hook, action string, change func(*config.Injected)) config.Injected {
	rank := 1
	f := config.Injected{At: config.Passage{Rank: &rank, Hook: hook, Count: 1}, Action: action}
	if change != nil {
		change(&f)
	}
	return f
}

// acts are what faults did, by name, in place of doing it.
func acts(t *testing.T, dir string, list ...config.Injected) (*faults, *[]string) {
	t.Helper()
	f, err := newFaults(list, dir)
	require.NoError(t, err)
	var done []string
	f.kill = func() { done = append(done, "kill") }
	f.exit = func(code int) { done = append(done, "exit") }
	f.hang = func() { done = append(done, "hang") }
	f.nap = func(d time.Duration) { done = append(done, "slow "+d.String()) }
	return f, &done
}

func at(point string, step, microbatch int) actors.Passage {
	return actors.Passage{Point: point, Step: step, Microbatch: microbatch}
}

// A fault happens at its passage: of its rank, point, step and microbatch, the nth time, once.
func TestFaultsHappenAtTheirPassage(t *testing.T) {
	step, mb := 3, 1
	f, done := acts(t, "", injected("before-send", "kill", func(f *config.Injected) { f.At.Count = 2 }),
		injected("layer.1.forward", "exit", func(f *config.Injected) { f.At.Step, f.At.Microbatch = &step, &mb }),
		injected("grad-reduce", "slow", func(f *config.Injected) { f.Ms, f.During.Steps = 1.5, &[2]int{2, 3} }))
	for _, p := range []struct {
		rank int
		at   actors.Passage
		want []string
	}{
		{0, at("before-send", 1, 0), nil},
		{1, at("after-send", 1, 0), nil},
		{1, at("before-send", 1, 0), nil},
		{1, at("before-send", 2, 0), []string{"kill"}},
		{1, at("before-send", 2, 0), nil},
		{1, at("layer.1.forward", 2, 1), nil},
		{1, at("layer.1.forward", 3, 0), nil},
		{1, at("layer.1.forward", 3, 1), []string{"exit"}},
		{1, at("layer.1.forward", 3, 1), nil},
		{1, at("grad-reduce", 1, -1), nil},
		{1, at("grad-reduce", 2, -1), []string{"slow 1.5ms"}},
		{1, at("grad-reduce", 3, -1), []string{"slow 1.5ms"}},
		{1, at("grad-reduce", 4, -1), nil},
	} {
		*done = nil
		f.pass(p.rank, p.at)
		require.Equal(t, p.want, *done, "%+v", p)
	}
}

// Of a rank whose lives are in several processes passages are counted on: what has happened does not happen again, and of two
// faults at one point each comes in its turn.
func TestFaultsCountOverProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "faults")
	list := []config.Injected{injected("before-send", "kill", func(f *config.Injected) { f.At.Count = 2 }), injected("before-send", "exit", func(f *config.Injected) { f.At.Count = 5 })}
	var all []string
	for range 4 { // lives of two passages
		f, done := acts(t, dir, list...)
		f.pass(1, at("before-send", 1, 0))
		f.pass(1, at("before-send", 1, 0))
		all = append(all, *done...)
		all = append(all, "end")
	}
	require.Equal(t, []string{"kill", "end", "end", "exit", "end", "end"}, all)
	require.NoError(t, os.Chmod(dir, 0o500))
	if os.Getuid() != 0 { // root writes everywhere
		f, _ := acts(t, dir, injected("after-send", "kill", nil), injected("after-send", "kill", nil), injected("after-send", "kill", nil))
		require.Panics(t, func() { f.pass(1, at("after-send", 1, 0)) }, "an uncounted fault would come again and again")
	}
	require.NoError(t, os.Chmod(dir, 0o700))
}

// The disk fails the next snapshot of the rank, once; a rank may die in the middle of a snapshot.
func TestFaultsOfTheDisk(t *testing.T) {
	step := 4
	f, done := acts(t, "", injected("before-snapshot", "enospc", nil), injected("mid-snapshot", "kill", func(f *config.Injected) { f.At.Step = &step }),
		injected("mid-snapshot", "eio", func(f *config.Injected) { f.At.Count = 3 }))
	one, other := f.onDisk(1), f.onDisk(0)
	require.NoError(t, one("mid-snapshot", 2))
	f.pass(1, at("before-snapshot", 2, -1))
	require.NoError(t, other("mid-snapshot", 2))
	require.ErrorIs(t, one("mid-snapshot", 2), syscall.ENOSPC)
	require.Empty(t, *done)
	require.ErrorIs(t, one("mid-snapshot", 4), syscall.EIO, "the third passage")
	require.Equal(t, []string{"kill"}, *done)
	require.NoError(t, one("mid-snapshot", 6))
	require.NoError(t, one("after-snapshot", 6))
}

// A panic says where it comes from; without faults of ranks nobody looks.
func TestFaultsPanicAndHooks(t *testing.T) {
	f, _ := acts(t, "", injected("mtp.1.forward", "panic", nil))
	require.PanicsWithError(t, "the scenario's fault at mtp.1.forward 1 of rank 1", func() { f.pass(1, at("mtp.1.forward", 1, 0)) })
	require.True(t, f.ofProgram())
	require.NotNil(t, f.hook())
	f, _ = acts(t, "", config.Injected{Server: "nats-1", Action: "kill"})
	require.False(t, f.ofProgram())
	require.Nil(t, f.hook())
}
