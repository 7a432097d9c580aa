package data_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
	"phalanx/nn"
)

// rowsOf are the rows of a microbatch, each as a text of everything that it holds.
func rowsOf(m *nn.Microbatch) []string {
	var out []string
	for b := range m.B {
		from, to := b*m.S, (b+1)*m.S
		text := fmt.Sprint(m.IDs[from:to], m.Labels[from:to], m.Positions[from:to])
		if m.Pad != nil {
			text += fmt.Sprint(m.Pad.Pad[from:to])
		}
		if !m.Loss.AllOnes {
			text += fmt.Sprint(m.Loss.Weight[from:to])
		}
		if m.Docs != nil {
			text += fmt.Sprint(m.Docs[b])
		}
		if m.Embeddings != nil {
			h := len(m.Embeddings) / (m.B * m.S)
			text += fmt.Sprint(m.Embeddings[from*h : to*h])
		}
		out = append(out, text)
	}
	return out
}

// steps are the rows of steps [from, to) in order.
func steps(src data.Source, from, to int) []string {
	var out []string
	for step := from; step < to; step++ {
		for mb := range src.Microbatches() {
			out = append(out, rowsOf(src.Microbatch(step, mb))...)
		}
	}
	return out
}

// legs are runs that go on with one another's data: micro batch size, microbatches, steps, and iterations that it plans.
var legs = [][][4]int{
	{{1, 1, 7, 7}, {2, 3, 2, 9}, {3, 1, 5, 14}, {1, 4, 10, 500}},
	{{4, 1, 3, 1}, {1, 2, 3, 6}, {2, 2, 9, 1}},
	{{1, 3, 1, 1000}, {1, 3, 1, 1}, {1, 3, 16, 3}},
}

// stepOfFour are legs whose steps have four rows, as every step of the runs of kind rows and reference must have.
var stepOfFour = [][][4]int{{{1, 4, 3, 3}, {2, 2, 5, 8}, {4, 1, 4, 1}}, {{2, 2, 1, 1}, {1, 4, 11, 12}}}

// TestResume: whatever the batch sizes before and after, however often a run stops, its rows are those of a run without
// a stop, for every kind of dataset. Which data-parallel rank takes a microbatch is Owned's, and no part of it.
func TestResume(t *testing.T) {
	for kind, s := range everyKind(t) {
		t.Run(kind, func(t *testing.T) {
			whole := steps(open(t, s).Train, 0, 15)
			runs := legs
			if s.Dataset.Kind == "rows" {
				runs = stepOfFour
			}
			for _, run := range runs {
				resume(t, s, whole, run)
			}
		})
	}
}

// resume runs the legs and compares their rows with those of a whole run.
func resume(t *testing.T, s *config.Scenario, whole []string, run [][4]int) {
	t.Helper()
	var got []string
	cursor := data.Cursor{}
	for _, leg := range run {
		next := *s
		if s.Dataset.Kind != "reference" { // whose batches are never cut
			next.Train = config.Train{MicroBatchSize: leg[0], GlobalBatchSize: leg[0] * leg[1], TrainIters: leg[3]}
		}
		src, err := open(t, &next).TrainFrom(cursor)
		require.NoError(t, err)
		got = append(got, steps(src, cursor.Step, cursor.Step+leg[2])...)
		cursor = cursor.After(leg[2], next.Train.GlobalBatchSize)
		require.Equal(t, len(got), cursor.Consumed)
	}
	n := min(len(got), len(whole))
	require.Greater(t, n, 20)
	require.Equal(t, whole[:n], got[:n])
}

func TestCursorRefusals(t *testing.T) {
	d := open(t, scenario("synthetic", 2, 2, 8, 16))
	_, err := d.TrainFrom(data.Cursor{Step: 1, Consumed: -4})
	require.ErrorContains(t, err, "found -4 samples consumed before step 1, expected no negative numbers")
	src, err := d.TrainFrom(data.Cursor{Step: 3, Consumed: 7})
	require.NoError(t, err)
	require.Equal(t, src.Microbatch(3, 1), src.Microbatch(3, 1))
	require.Panics(t, func() { src.Microbatch(2, 0) }, "before the cursor")
	require.Panics(t, func() { src.Microbatch(3, 2) })
	s := referenceScenario(t, "moe-mtp")
	_, err = open(t, s).TrainFrom(data.Cursor{Step: 1, Consumed: 1})
	require.ErrorContains(t, err, "train.micro_batch_size: found 1 samples consumed, expected a multiple of 2")
}
