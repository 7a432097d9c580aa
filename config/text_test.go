package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3},
		{"num_layer", "num_layers", 1}, {"é", "e", 1}, {"lr", "rl", 1},
	} {
		require.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%s %s", c.b, c.a)
	}
}

// TestDistanceProperty: symmetric, zero only for equals, and at most one for one edit.
func TestDistanceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-d]{0,8}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		require.Equal(t, d, distance(b, a))
		require.Equal(t, a == b, d == 0)
		require.LessOrEqual(t, d, max(len(a), len(b)))
		require.LessOrEqual(t, distance(a, b+"x"), d+1)
		if len(a) > 1 {
			require.LessOrEqual(t, distance(a, a[1:2]+a[:1]+a[2:]), 1)
		}
	})
}

func TestNearest(t *testing.T) {
	words := []string{"lr", "min_lr", "weight_decay", "adam_beta1", "adam_beta2", "WSD"}
	for word, want := range map[string]string{
		"weigth_decay": "weight_decay", "weightdecay": "weight_decay", "adam_beta": "adam_beta1", "LR": "lr", "lr2": "lr", "wsd": "WSD", "zebra": "",
		"decay": "", "": "", strings.Repeat("x", 1000): "",
	} {
		got, _ := nearest(word, words)
		require.Equal(t, want, got, word)
	}
}

func TestShow(t *testing.T) {
	for text, want := range map[string]string{
		"abc": "abc", "": `""`, "a b": `"a b"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, "é": "é", strings.Repeat("é", 61): strings.Repeat("é", 60) + "…", `a"b`: `"a\"b"`,
	} {
		require.Equal(t, want, show(text))
	}
	require.Equal(t, "a", oneOf([]string{"a"}))
	require.Equal(t, "a or b", oneOf([]string{"a", "b"}))
	require.Equal(t, "a, b or c", oneOf([]string{"a", "b", "c"}))
	require.Empty(t, oneOf(nil))
}

func TestNearestLegal(t *testing.T) {
	require.Equal(t, 2, divisor(6, 2))
	require.Equal(t, 3, divisor(6, 4))
	require.Equal(t, 6, divisor(6, 100))
	require.Equal(t, 1, divisor(7, 4))
	require.Equal(t, 4, multiple(4, 1))
	require.Equal(t, 4, multiple(4, 6))
	require.Equal(t, 8, multiple(4, 7))
	require.Equal(t, 5, nearestLegal(9, 5, 6, func(int) bool { return false }))
}
