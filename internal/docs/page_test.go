package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocks(t *testing.T) {
	page := "a\n<!-- x -->\nold\n<!-- end x -->\nb\n"
	text, err := Block(page, "x")
	require.NoError(t, err)
	require.Equal(t, "old\n", text)
	page, err = WithBlock(page, "x", "new\n")
	require.NoError(t, err)
	require.Equal(t, "a\n<!-- x -->\nnew\n<!-- end x -->\nb\n", page)
	_, err = Block(page, "y")
	require.ErrorContains(t, err, "end y")
}

func TestReadingPages(t *testing.T) {
	page := "# T\n\n## One\n[a](b.md) `[c](d.md)`\n```sh\n# comment\ngo test ./... \\\n  -v\n```\n### Sub\nx\n\n```text\n[e](f.md)\n```\n## Two\ny\n"
	require.Equal(t, []string{"b.md"}, Links(page))
	require.Equal(t, []string{"go test ./...   -v"}, Commands(page))
	require.Contains(t, Section(page, "## One"), "### Sub\nx")
	require.NotContains(t, Section(page, "## One"), "y")
	require.Empty(t, Section(page, "## Three"))
	require.True(t, anchors("# T\n## Not in this version: *all*\n")["not-in-this-version-all"])
}

func TestProbes(t *testing.T) {
	source := "\t{key: \"faults\", now: \"x\"},\n\t{key: \"a.b\", values: is(\"p\", \"q\")},\n\t{key: \"c.*.d\", values: moreThan(3), now: \"3\"},\n" +
		"\t{key: \"e.f\", list: true, now: \"one\"},\n\t{key: \"g\", values: is(later()...)},\n"
	require.Equal(t, []probe{{"faults", "1"}, {"a.b", "p"}, {"a.b", "q"}, {"c.0.d", "4"}, {"e.f", "[a, b]"}}, probesOf(source))
	require.Contains(t, Refused("train.dtype", "bf16"), "not in this version")
	require.Empty(t, Refused("train.dtype", "fp64"))
	require.Empty(t, Refused("train.dtype", "fp99"))
	require.Equal(t, "x", now("not in this version; supported now: x"))
}
