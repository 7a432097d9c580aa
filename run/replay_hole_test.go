package run_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/recording"
	"phalanx/run"
)

// threeLives is a recording in which rank 1 dies in the fourth step and in the last.
func threeLives(t *testing.T) string {
	t.Helper()
	dir, report := recorded(t, on("tp2 sp ep2", "faults=[{at: {rank: 1, step: 4, hook: mtp.2.backward, count: 2}, action: panic}, {at: {rank: 1, step: 6, hook: layer.1.forward, count: 3}, action: panic}]")...)
	require.Equal(t, 2, report.Restarts)
	return dir
}

// What a cut or deleted life takes from a recording is a hole if a later life begins behind it, and the end if none does: never a
// program that computes something else.
func TestHolesAreNoDivergence(t *testing.T) {
	source := threeLives(t)
	whole := replayed(t, source, run.ReplayOptions{Rank: 1})
	require.Nil(t, whole.Divergence)
	holes, ends := 0, 0
	for inc := 1; inc <= 3; inc++ {
		n := len(lifeOf(t, source, 1, inc).records)
		for cut := -1; cut < n; cut += max(1, n/12) { // -1: the whole file
			t.Run(fmt.Sprintf("life %d cut to %d of %d records", inc, cut, n), func(t *testing.T) {
				dir := copied(t, source)
				f := lifeOf(t, dir, 1, inc)
				lost := f.records[max(cut, 0):]
				if f.records = f.records[:max(cut, 0)]; cut < 0 {
					require.NoError(t, os.Remove(f.path))
				} else {
					f.write(t)
				}
				hole, end := missing(t, dir, inc, cut < 0, lost)
				r, err := run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1})
				require.Nil(t, r.Divergence)
				var lack *recording.LackError
				switch {
				case hole:
					holes++
					require.ErrorAs(t, err, &lack)
					require.Equal(t, run.ExitBadInput, run.ExitCode(err))
					checkLack(t, dir, lack, inc, cut)
				case end:
					ends++
					require.NoError(t, err)
					require.Equal(t, "the recording ends here", r.Ended)
				default:
					require.NoError(t, err)
					require.Equal(t, whole.Received, r.Received, "everything is in other lives")
				}
			})
		}
	}
	require.Positive(t, holes)
	require.Positive(t, ends)
}

// missing says of records that were taken from a life whether something of them is needed: before a later life, or at the end.
// The step in a message's header says where it belongs.
func missing(t *testing.T, dir string, inc int, deleted bool, lost []record) (hole, end bool) {
	t.Helper()
	type key struct {
		kind      byte
		peer, way uint16
		log       uint64
	}
	of := func(r record) key { return key{r.kind, r.h.Src + r.h.Dst, r.h.Chan, r.h.Log} }
	there, latest := map[key]bool{}, uint32(0)
	for other := 1; other <= 3; other++ {
		if other == inc && deleted {
			continue
		}
		f := lifeOf(t, dir, 1, other)
		if other > inc {
			latest = max(latest, binary.LittleEndian.Uint32(f.head[24:]))
		}
		for _, r := range f.records {
			there[of(r)] = true
		}
	}
	for _, r := range lost {
		if (r.kind == 'r' || r.kind == 's') && !there[of(r)] {
			hole = hole || r.h.Step < latest
			end = end || r.h.Step >= latest && r.kind == 'r'
		}
	}
	return hole, end
}

// checkLack looks at what a hole says, and begins behind it.
func checkLack(t *testing.T, dir string, lack *recording.LackError, inc, cut int) {
	t.Helper()
	require.Equal(t, 1, lack.Rank)
	require.Greater(t, lack.Next.Incarnation, uint32(inc))
	switch {
	case inc == 1 && cut < 0:
		require.ErrorContains(t, lack, fmt.Sprintf("(nothing is there before life %d, which begins with %d steps done)", lack.Next.Incarnation, lack.Next.Step))
	case cut >= 0:
		require.Equal(t, uint32(inc), lack.Before.Incarnation)
		require.Equal(t, cut, lack.Before.Records)
		fallthrough
	default:
		require.ErrorContains(t, lack, fmt.Sprintf("(life %d ends after %d records with %d steps done, the next, life %d, begins with %d)",
			lack.Before.Incarnation, lack.Before.Records, lack.Before.Begun, lack.Next.Incarnation, lack.Next.Step))
	}
	require.EqualValues(t, lack.Next.Step, lack.GoingOn, "a snapshot is there wherever a life begins")
	require.ErrorContains(t, lack, fmt.Sprintf("begin behind the hole: --from-step %d", lack.GoingOn))
	r := replayed(t, dir, run.ReplayOptions{Rank: 1, From: lack.GoingOn})
	require.Nil(t, r.Divergence)
	require.EqualValues(t, 6, r.Steps)
}

// What was recorded after deaths only begins behind its last hole: a life that was given up for a later one leaves one.
func TestHolesAfterDeaths(t *testing.T) {
	report, err := trained(t, moeRun, run.Options{Out: t.TempDir()}, on("tp2 sp ep2", "recovery.snapshot_every=2", "recovery.rank_restarts=9", "train.train_iters=8", poison(3))...)
	require.Equal(t, run.ExitPoison, run.ExitCode(err), "%v", err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "recording"), os.DirFS(report.Bundle)))
	whole := replayed(t, dir, run.ReplayOptions{Rank: 1})
	given := lifeOf(t, dir, 1, 2) // lives 2 and 3 came up to the place
	begins := binary.LittleEndian.Uint32(lifeOf(t, dir, 1, 3).head[24:])
	require.Positive(t, begins, "the third life begins with a snapshot")
	binary.LittleEndian.PutUint32(given.head[24:], 0)
	given.head = lifeHead(given.head, 2)
	given.records = given.records[:1]
	given.write(t)
	r := replayed(t, dir, run.ReplayOptions{Rank: 1})
	require.Nil(t, r.Divergence)
	require.Equal(t, begins, r.From)
	require.Equal(t, whole.Stopped.Waits, r.Stopped.Waits, "it comes to where the rank died")
}
