package replay

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/internal/disk"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/recording"
	"phalanx/snapshot"
	"phalanx/tensor"
)

// pair are two data-parallel ranks.
var pair = mesh.Sizes{TP: 1, CP: 1, DP: 2, PP: 1, EP: 1, ETP: 1}

// add is what the programs of these tests do: they add a number over both ranks.
func add(c nn.Comm, step int, x float64) float64 {
	in, out := []float64{x}, []float64{0}
	c.Do(&nn.Op{Axis: mesh.DP, Kind: nn.AllReduce, Reduce: nn.Sum, Tag: nn.TagFlags, DType: tensor.F64, In: tensor.Bytes(in), Out: tensor.Bytes(out),
		Site: nn.Site{Step: step, Phase: nn.Update, Layer: -1}})
	return out[0]
}

// taped is a recording of rank 1, which has added 1 to 10 of rank 0, then 2 to 20, and so on.
func taped(t *testing.T, steps int) *recording.Tape {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r")
	require.NoError(t, recording.Create(disk.OS{}, dir, recording.Run{World: 2}, nil))
	r := recording.New(dir, recording.Options{Rank: 1, World: 2})
	r.Life(1, snapshot.State{})
	groups := [2]*collective.Group{}
	for rank := range groups {
		groups[rank] = collective.NewGroup(collective.Place{Rank: rank, Sizes: pair}, mesh.DP)
	}
	for step := range steps {
		r.Begun(uint32(step))
		for rank, g := range groups {
			x := []float64{float64((step + 1) * []int{10, 1}[rank])}
			sent, _, err := g.Begin(0, &nn.Op{Axis: mesh.DP, Kind: nn.AllReduce, Reduce: nn.Sum, Tag: nn.TagFlags, DType: tensor.F64, In: tensor.Bytes(x),
				Out: make([]byte, 8), Site: nn.Site{Step: step, Phase: nn.Update, Layer: -1}})
			require.NoError(t, err)
			for _, m := range sent {
				if m.Header.Log = uint64(step); rank == 1 {
					r.Sent(m.Header, m.Payload, uint64(step))
				} else {
					r.Received(m.Header, m.Payload)
				}
			}
			for _, m := range sent {
				_, _, err := groups[1-rank].Deliver(m.Header, m.Payload)
				require.NoError(t, err)
			}
		}
	}
	r.Begun(uint32(steps))
	r.Done()
	r.Close()
	tape, err := recording.Open(dir, recording.Run{}, 1, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tape.Close()) })
	return tape
}

func run(t *testing.T, tape *recording.Tape, program func(World, nn.Comm)) (Result, error) {
	t.Helper()
	return Run(Options{Place: collective.Place{Rank: 1, Sizes: pair}, Tape: tape, Programs: func(w World) ([]func(nn.Comm), error) {
		return []func(nn.Comm){func(c nn.Comm) { program(w, c) }}, nil
	}})
}

// adds adds x of a step on every step.
func adds(steps int, x func(step int) float64, sums *[]float64) func(World, nn.Comm) {
	return func(w World, c nn.Comm) {
		for step := range steps {
			w.Boundary(step, nil)
			*sums = append(*sums, add(c, step, x(step)))
		}
		w.Boundary(steps, nil)
	}
}

func TestRun(t *testing.T) {
	var sums []float64
	r, err := run(t, taped(t, 3), adds(3, func(step int) float64 { return float64(step + 1) }, &sums))
	require.NoError(t, err)
	require.Nil(t, r.Divergence)
	require.Equal(t, []float64{11, 22, 33}, sums)
	require.Equal(t, 3, r.Sent)
	require.Equal(t, 3, r.Received)
}

// Whatever a program does otherwise is found where it does.
func TestDivergences(t *testing.T) {
	right := func(step int) float64 { return float64(step + 1) }
	for _, c := range []struct {
		name    string
		program func(World, nn.Comm)
		what    What
		step    uint32
		number  uint64
	}{
		{"another number", adds(3, func(step int) float64 { return float64(step+1) + float64(step/2)/1024 }, &[]float64{}), OfMessage, 2, 2},
		{"a step more", adds(4, right, &[]float64{}), OfMore, 3, 3},
		{"a step less", adds(2, right, &[]float64{}), OfSteps, 2, 0},
		{"another name", func(w World, c nn.Comm) { w.Boundary(0, nil); add(c, 1, 1) }, OfMessage, 1, 0},
		{"nothing", func(w World, c nn.Comm) { w.Boundary(3, nil) }, OfLess, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := run(t, taped(t, 3), c.program)
			require.NoError(t, err)
			require.NotNil(t, r.Divergence)
			require.Equal(t, c.what, r.Divergence.What, "%v", r.Divergence)
			require.Equal(t, c.step, r.Divergence.Step)
			require.Equal(t, c.number, r.Divergence.Number)
		})
	}
}

// A program that panics ends the replay with its place, and with the value.
func TestProgramsPanic(t *testing.T) {
	boom := errors.New("boom")
	_, err := run(t, taped(t, 3), func(w World, c nn.Comm) {
		add(c, 0, 1)
		panic(boom)
	})
	var p *ProgramError
	require.ErrorAs(t, err, &p)
	require.ErrorIs(t, err, boom)
	require.Equal(t, 0, p.Site.Step)
	require.Contains(t, err.Error(), "rank 1, program stage, last collective at step 0")
	require.NotEmpty(t, p.Stack)

	refusal := errors.New("no programs")
	_, err = Run(Options{Place: collective.Place{Rank: 1, Sizes: pair}, Tape: taped(t, 1), Programs: func(World) ([]func(nn.Comm), error) { return nil, refusal }})
	require.Equal(t, refusal, err)
}
