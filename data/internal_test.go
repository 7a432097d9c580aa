package data

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestOrderIsAPermutationOfEachEpoch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := order{n: rapid.IntRange(1, 300).Draw(r, "n"), seed: rapid.Uint64().Draw(r, "seed"), name: "x", shuffle: true}
		epoch := rapid.IntRange(0, 1000).Draw(r, "epoch")
		seen := make([]bool, o.n)
		for i := range o.n {
			k := o.at(epoch*o.n + i)
			require.True(r, k >= 0 && k < o.n && !seen[k])
			seen[k] = true
		}
	})
}

func TestOrderDependsOnSeedNameAndEpoch(t *testing.T) {
	list := func(o order, epoch int) (out []int) {
		for i := range o.n {
			out = append(out, o.at(epoch*o.n+i))
		}
		return out
	}
	a := order{n: 100, seed: 1, name: "a", shuffle: true}
	b, c := a, a
	b.seed, c.name = 2, "b"
	require.NotEqual(t, list(a, 0), list(a, 1))
	require.NotEqual(t, list(a, 0), list(b, 0))
	require.NotEqual(t, list(a, 0), list(c, 0))
	require.Equal(t, []int{0, 1, 2}, list(order{n: 3}, 5))
}

// TestShuffleIsEven: over many epochs each sample comes first about equally often.
func TestShuffleIsEven(t *testing.T) {
	const n, epochs = 10, 5000
	var first [n]int
	for e := range epochs {
		first[order{n: n, seed: 9, shuffle: true}.at(e*n)]++
	}
	for _, k := range first {
		require.InDelta(t, epochs/n, k, 110) // 5 standard deviations
	}
}

func TestStream(t *testing.T) {
	a, b := newStream(5, "x", 1), newStream(5, "x", 1)
	for range 9 {
		require.Equal(t, a.next(), b.next())
	}
	require.NotEqual(t, newStream(5, "x", 1).next(), newStream(5, "x", 2).next())
	require.NotEqual(t, newStream(5, "x", 1).next(), newStream(5, "y", 1).next())
	require.NotEqual(t, newStream(5, "x", 1).next(), newStream(5+1<<32, "x", 1).next())
	seen := map[int]bool{}
	for range 200 {
		k := a.below(7)
		require.True(t, k >= 0 && k < 7)
		seen[k] = true
	}
	require.Len(t, seen, 7)
}

// TestPlanIsBounded: a run that needs more than the limit meets the first rows again.
func TestPlanIsBounded(t *testing.T) {
	r := planner{order: order{n: 10, seed: 3, name: "x", shuffle: true}, s: 8, limit: 35,
		places: func(doc int) int { return 1 + doc%7 }, tokens: func(doc int) int { return 1 + doc%7 }}
	p := r.plan(1000)
	require.Equal(t, 3, p.epochs, "whole epochs below the limit")
	require.Equal(t, []int{30, 8 * p.rows, len(p.starts) - 1}, []int{p.docs, p.positions, p.rows})
	for g := range p.rows {
		row := p.row(g)
		require.Equal(t, row, p.row(g+2*p.rows))
		require.Equal(t, row[0]/10, row[len(row)-1]/10, "no row of two epochs")
	}
	r.limit = 3
	require.Equal(t, 1, r.plan(1000).epochs, "one epoch however many documents")
	r.limit = 35
	short := r.plan(1)
	require.Equal(t, 1, short.epochs)
	for g := range 40 {
		require.Equal(t, p.row(g), short.row(g), "what was not planned at the start is planned when it is asked for")
	}
	r.order.shuffle = false
	require.Equal(t, 1, r.plan(1000).epochs)
}

func TestNormal(t *testing.T) {
	s, n := newStream(1, "x", 0), 20000
	var sum, squares, fourth float64
	for range n {
		x := s.normal()
		sum, squares, fourth = sum+x, squares+x*x, fourth+x*x*x*x
	}
	require.InDelta(t, 0, sum/float64(n), 0.036)
	require.InDelta(t, 1, squares/float64(n), 0.05)
	require.InDelta(t, 3, fourth/float64(n), 0.35)
}

func TestLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	b, err := readFile(path, 10)
	require.NoError(t, err)
	require.Len(t, b, 10)
	_, err = readFile(path, 9)
	require.ErrorContains(t, err, "a.txt: found more than 9 bytes, expected at most that; split it and use a part")
	_, err = readFile("/dev/null", 9)
	require.ErrorContains(t, err, "found a special file, expected a file")

	r := &jsonlReader{tok: Bytes{}, keep: 9, lineMax: 20, errs: &Error{}}
	r.line("f", 3, []byte(`{"text":"much too long a line"}`))
	require.EqualError(t, r.errs.orNil(), "f:3: found a line of 31 bytes, expected at most 20")
}

func TestFileErrorsNameTheCause(t *testing.T) {
	require.EqualError(t, fileError("f", &os.PathError{Op: "open", Path: "f", Err: errors.New("too bad")}), "f: too bad")
	require.Equal(t, "1 file, 2 files, 2 microbatches", count(1, "file")+", "+count(2, "file")+", "+count(2, "microbatch"))
}

func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"text":"héllo"}`, `{"prompt":"a","completion":"b"}`, `{"messages":[{"role":"user","content":"x"}]}`,
		`{"messages":[{"role":"assistant","content":null}]}`, `{"text":null}`, `[]`, `{`, "", "null", "\xff", `{"prompt":"","completion":"ab"}`} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, line []byte, keep uint8) {
		d, err := parseDocument(line, Bytes{})
		if err != nil {
			require.True(t, utf8.ValidString(err.Error()) || !utf8.Valid(line))
			require.False(t, strings.Contains(err.Error(), "Go value"), "Go's words for a user's file: %v", err)
			return
		}
		d.cut(int(keep) + 2)
		q := d.sequence(d.answer != nil)
		require.GreaterOrEqual(t, len(q.ids), 1)
		require.LessOrEqual(t, len(q.ids), int(keep)+1)
		require.Len(t, q.labels, len(q.ids))
		if q.counts != nil {
			require.Len(t, q.counts, len(q.ids))
		}
	})
}
