package recording

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/internal/disk"
	"phalanx/recovery"
	"phalanx/snapshot"
)

// lived records lives that begin at steps, each with numbers of messages that it receives, one a step.
func lived(t *testing.T, lives ...[]uint64) (dir string) {
	t.Helper()
	dir, r := created(t, nil)
	for i, numbers := range lives {
		step := uint32(numbers[0])
		r.Life(uint32(i+1), at(step))
		for _, n := range numbers[1:] {
			r.Received(from(2, n, uint32(n)), body(2, n))
		}
	}
	r.Close()
	return dir
}

func lacks(t *testing.T, dir string, from recovery.State) *LackError {
	t.Helper()
	tape, err := Open(dir, Run{World: 3}, 1, build)
	require.NoError(t, err)
	defer func() { require.NoError(t, tape.Close()) }()
	return tape.Lacks(from)
}

// Each life is the step it begins at and the numbers it has recorded.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		lives  [][]uint64
		from   uint64
		number uint64
		text   string // "": nothing is missing
	}{
		{"one life", [][]uint64{{0, 0, 1, 2}}, 0, 0, ""},
		{"one that ends early is no hole", [][]uint64{{0, 0, 1, 2, 3}, {2, 2}}, 0, 0, ""},
		{"the next begins where one ends", [][]uint64{{0, 0, 1}, {2, 2, 3}}, 0, 0, ""},
		{"between two", [][]uint64{{0, 0}, {2, 2, 3}}, 0, 1, "(life 1 ends after 1 records with 0 steps done, the next, life 2, begins with 2); bring the file back"},
		{"behind it nothing is missing", [][]uint64{{0, 0}, {2, 2, 3}}, 2, 0, ""},
		{"before the first", [][]uint64{{2, 2, 3}}, 0, 0, "(nothing is there before life 1, which begins with 2 steps done); bring the file back"},
		{"the last of several that begin behind it", [][]uint64{{0, 0}, {2}, {2, 2}}, 0, 1, "(life 1 ends after 1 records with 0 steps done, the next, life 3, begins with 2)"},
		{"the second of three", [][]uint64{{0, 0, 1, 2}, {2, 2}, {4, 4}}, 0, 3, "(life 2 ends after 1 records with 2 steps done, the next, life 3, begins with 4)"},
		{"in the middle", [][]uint64{{0, 0, 1, 3}}, 0, 2, "(it is gone from the middle of life 1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lack := lacks(t, lived(t, c.lives...), recovery.State{Step: uint32(c.from), Need: map[recovery.Edge]uint64{edge: c.from}})
			if c.text == "" {
				require.Nil(t, lack)
				return
			}
			require.NotNil(t, lack)
			require.Equal(t, c.number, lack.Number)
			require.Equal(t, edge, lack.Edge)
			require.ErrorContains(t, lack, "that rank 1 has received, and maybe more "+c.text)
		})
	}
}

// A life that has recorded no message says by its snapshot what must be there before it. What went to others than ranks need not.
func TestLacksBeforeASnapshot(t *testing.T) {
	for cut, number := range map[int]uint64{4: 0, 3: 3, 0: 0} {
		dir, r := created(t, nil)
		r.Life(1, at(0))
		for n := range uint64(cut) {
			r.Sent(to(2, n, 0), body(2, n), n)
		}
		state := recovery.State{Step: 2, Sent: map[recovery.Edge]uint64{edge: 4, {Peer: 3}: 9}, Need: map[recovery.Edge]uint64{{Peer: 3}: 1}}
		r.Snapshot(2, snapshot.State{Local: []byte("local"), At: state})
		r.Life(2, snapshot.State{At: state})
		r.Close()
		lack := lacks(t, dir, recovery.State{})
		require.Equal(t, cut < 4, lack != nil)
		if lack != nil {
			require.Equal(t, number, lack.Number)
			require.True(t, lack.Sent)
			require.ErrorContains(t, lack, "the next, life 2, begins with 2); bring the file back, or begin behind the hole: --from-step 2")
		}
		require.Nil(t, lacks(t, dir, state))
	}
}

// What is recorded after deaths only must hang together: a life that is past a death takes those before it along.
func TestPassedLivesGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "poison")
	require.NoError(t, Create(disk.OS{}, dir, Run{World: 3}, nil))
	r, other := New(dir, Options{Rank: 1, World: 3, Build: build, Passing: true}), New(dir, Options{Rank: 2, World: 3, Build: build, Passing: true})
	other.Life(2, at(0))
	other.Close()
	r.Life(2, at(2))
	r.Life(3, at(2))
	r.Passed()
	r.Received(from(2, 7, 3), nil) // is not recorded any more
	names, err := filepath.Glob(filepath.Join(dir, "rank-*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "rank-00002.inc-0000000002.recording")}, names)
	r.Life(4, at(4))
	r.Close()
	require.Equal(t, []LifeOf{{Incarnation: 4, Step: 4, Begun: 4}}, opened(t, dir).Lives)
}
