package data_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/data"
)

// TestSplitRounds: cumulative shares of n to the nearest whole number, halves to the even one, worked out by hand.
func TestSplitRounds(t *testing.T) {
	for _, c := range []struct {
		split string
		n     int
		want  string
	}{
		{"969,30,1", 1000, "969 for training, 30 for validation, 1 for test"},
		{"969,30,1", 100, "97 for training, 3 for validation"}, // 96.9, 99.9
		{"98,2", 100, "98 for training, 2 for validation"},
		{"1,1", 5, "2 for training, 3 for validation"}, // 2.5
		{"1,1", 7, "4 for training, 3 for validation"}, // 3.5
		{"3, 1 ,1", 10, "6 for training, 2 for validation, 2 for test"},
		{"1", 10, "10 for training, 0 for validation"},
		{"0.1,0.1,0.1", 3, "1 for training, 1 for validation, 1 for test"},
		{"2,0,1", 9, "6 for training, 0 for validation, 3 for test"},
	} {
		var docs []string
		for i := range c.n {
			docs = append(docs, fmt.Sprintf(`{"text":"%04d"}`, i))
		}
		s := lines(t, 1, 8, docs...)
		s.Dataset.Split = c.split
		d := open(t, s)
		require.Contains(t, d.Summary, fmt.Sprintf(", %s, 0 cut", c.want), c.split)
		parts := map[string]data.Source{"training": d.Train, "validation": d.Validation, "test": d.Test}
		next := 0
		for _, part := range strings.Split(c.want, ", ") {
			var n int
			var of string
			_, err := fmt.Sscanf(part, "%d for %s", &n, &of)
			require.NoError(t, err)
			if n == 0 {
				require.Nil(t, parts[of])
			}
			for i := range n {
				require.Equal(t, fmt.Sprintf("%04d", next)[:3], d.Tokenizer.Decode(parts[of].Microbatch(i, 0).IDs[:3]))
				next++
			}
		}
		require.Equal(t, c.n, next)
	}
}

func TestSplitOfText(t *testing.T) {
	text := numbers(400)
	s := scenario("text", 1, 1, 8, 256)
	s.Dataset.Paths, s.Dataset.Split = []string{write(t, "a.txt", text)}, "2,1,1"
	d := open(t, s)
	require.Equal(t, "text: 1 file, 400 tokens, 24 rows of 8 for training, 12 for validation from token 200 on, 12 for test from token 300 on", d.Summary)
	require.Equal(t, text[200:208], d.Tokenizer.Decode(d.Validation.Microbatch(0, 0).IDs))
	require.Equal(t, text[300:308], d.Tokenizer.Decode(d.Test.Microbatch(0, 0).IDs))
	s.Dataset.Split = "399,0,1"
	require.Contains(t, refused(t, s), "found 1 token for test from token 399 on, expected at least 9")
}

func TestParseSplit(t *testing.T) {
	shares, ok := config.ParseSplit("969,30,1")
	require.True(t, ok)
	require.Equal(t, [3]float64{0.969, 0.03, 0.001}, shares)
	for _, bad := range []string{"", "a", "1,2,3,4", "0,1", "-1,2", "1,,1", "1,NaN", "1,Inf", "1e308,1e308"} {
		_, ok := config.ParseSplit(bad)
		require.False(t, ok, bad)
	}
}
