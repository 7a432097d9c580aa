package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// keeper is what a rank needs of its snapshots, wherever they are.
type keeper interface {
	Begin() (step uint32, sections [][]byte, durable []uint32, err error)
	Sections(step uint32) (sections [][]byte, err error)
	Save(step uint32, sections [][]byte, done func(error)) (durable bool)
	Commit(step uint32) error
}

// keepers open the snapshots of rank 3; every call of next is its next life.
var keepers = map[string]func(t *testing.T) (next func() keeper){
	"memory": func(*testing.T) func() keeper {
		m := &Memory{Rank: 3}
		return func() keeper { return m }
	},
	"disk": func(t *testing.T) func() keeper {
		dir, incarnation := t.TempDir(), uint32(0)
		return func() keeper {
			incarnation++
			s, warnings := open(t, dir, Options{Rank: 3, Incarnation: incarnation, Build: 9})
			t.Cleanup(func() { require.Empty(t, *warnings) })
			return s
		}
	},
}

// put saves a snapshot of two sections that say its step and life, and waits till it is durable. What was asked for before is
// done then.
func put(t *testing.T, k keeper, step uint32, life byte) {
	done := make(chan error, 1)
	if k.Save(step, [][]byte{{byte(step), life}, nil}, func(err error) { done <- err }) {
		require.Empty(t, done, "told twice")
		return
	}
	require.NoError(t, <-done)
}

// begins is where a life begins: the step, the life that saved it (0: the beginning), and all steps there are.
func begins(t *testing.T, k keeper) (step uint32, life byte, durable []uint32) {
	step, sections, durable, err := k.Begin()
	require.NoError(t, err)
	if sections == nil {
		return step, 0, durable
	}
	require.Len(t, sections, 2)
	require.Equal(t, byte(step), sections[0][0])
	require.Empty(t, sections[1])
	return step, sections[0][1], durable
}

// A rank finds what it has saved in its next life, begins with what was committed last, and may save a step again.
func TestEveryKeeperOfSnapshots(t *testing.T) {
	for name, open := range keepers {
		t.Run(name, func(t *testing.T) {
			next := open(t)
			begun := func(k keeper, wantStep uint32, wantLife byte, want ...uint32) {
				t.Helper()
				step, life, durable := begins(t, k)
				require.Equal(t, wantStep, step)
				require.Equal(t, wantLife, life)
				require.ElementsMatch(t, want, durable)
				require.IsIncreasing(t, append([]uint32{0}, durable...))
			}
			first := next()
			begun(first, 0, 0)
			put(t, first, 2, 1)
			put(t, first, 4, 1)
			begun(first, 0, 0, 2, 4)

			second := next()
			begun(second, 0, 0, 2, 4)
			require.NoError(t, second.Commit(2))
			begun(second, 2, 1, 2, 4)
			put(t, second, 4, 2)
			put(t, second, 6, 2)
			begun(second, 2, 1, 2, 4, 6)
			s, err := second.Sections(4)
			require.NoError(t, err)
			require.Equal(t, byte(2), s[0][1], "the newest counts")

			third := next()
			require.NoError(t, third.Commit(4))
			put(t, third, 8, 3) // behind the commit
			begun(third, 4, 2, 4, 6, 8)
			for _, gone := range []uint32{0, 2, 5, 9} {
				_, err = third.Sections(gone)
				var missing *MissingError
				require.ErrorAs(t, err, &missing)
				require.Equal(t, 3, missing.Rank)
				require.Equal(t, gone, missing.Step)
				require.ErrorContains(t, err, "has no snapshot of rank 3 at step")
			}
		})
	}
}
