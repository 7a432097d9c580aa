package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/data"
	"phalanx/nn"
)

var update = flag.Bool("update", false, "write the files in testdata")

// shown is a small batch with everything on it: two rows, one of two documents, text with tags, prompts that do not
// count, padding, and slots that two context-parallel ranks have to insert.
func shown(t *testing.T) *Report {
	t.Helper()
	mb := rowsOf(11, 11, 7)
	mb.Docs = nn.Docs{{{Start: 0, Logical: 6, Physical: 7}, {Start: 7, Logical: 4, Physical: 4}}, nil}
	text := []byte("a <b>&\x00cats is it\n?\x00\x00\x00\x00")
	for i := range mb.IDs {
		mb.IDs[i], mb.Labels[i] = int32(text[i]), int32(text[min(i+1, len(text)-1)])
	}
	for _, at := range []int{0, 5, 6, 11} {
		mb.Loss.Weight[at] = 0
	}
	mb.Pad.Pad[6] = true
	s := scenario(2, layout{2, 2, 2, true})
	s.Name, s.About = "tags <script>alert(1)</script>", `Quotes " and <i>tags</i> & ampersands.`
	return reported(t, s, data.Bytes{}, mb, rowsOf(11, 2, 1))
}

func kept(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "%s; run the test with -update if the change is meant", name)
}

func TestText(t *testing.T) {
	r := shown(t)
	text := Text(r)
	kept(t, "shown.txt", text)
	require.Equal(t, text, Text(shown(t)))
	for _, line := range strings.Split(text, "\n") {
		require.LessOrEqual(t, width(line), widthMax, line)
	}
}

func TestHTML(t *testing.T) {
	page, err := HTML([]*Report{shown(t)})
	require.NoError(t, err)
	kept(t, "shown.html", string(page))
	again, err := HTML([]*Report{shown(t)})
	require.NoError(t, err)
	require.Equal(t, page, again)
}

// A page executes nothing of the data and fetches nothing.
func TestHTMLIsSafeAndAlone(t *testing.T) {
	b, err := HTML([]*Report{shown(t), shown(t)})
	require.NoError(t, err)
	page := string(b)
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.Contains(t, page, "tags &lt;script&gt;alert(1)&lt;/script&gt;")
	require.NotContains(t, page, "<i>tags")
	require.NotContains(t, page, "ZgotmplZ")
	require.NotRegexp(t, regexp.MustCompile(`(?i)https?://|\ssrc=|@import|url\([^#]`), page)
	require.Contains(t, page, `<b>&lt;</b>`)
	require.Contains(t, page, `<a href="#run1">`)
}

// Long rows are summarised, in text and on the page.
func TestLongRows(t *testing.T) {
	r := reported(t, scenario(1, layout{1, 2, 1, false}), nil, rowsOf(304, 189))
	text := Text(r)
	require.Contains(t, text, "padding  0–188 valid, 189–303 padding\n")
	require.Contains(t, text, "loss     0–187 counted, 188–303 not counted\n")
	require.Contains(t, text, "owner           0–75 cp 0, 76–227 cp 1, 228–303 cp 0\n")
	require.Less(t, strings.Count(text, "\n"), 40)
	page, err := HTML([]*Report{r})
	require.NoError(t, err)
	require.Contains(t, string(page), "68 more")
	require.Contains(t, string(page), `<path class="f-counted" d="M0 0h189v1h-189z"/>`)
	require.Less(t, len(page), 120_000)
}

// A mask that changes everywhere is drawn as far as a reader may want it.
func TestGridIsBounded(t *testing.T) {
	mb := rowsOf(4096, 4096)
	for i := range mb.Loss.Weight {
		mb.Loss.Weight[i] = float32(i % 2)
	}
	r := reported(t, scenario(2, layout{1, 4, 1, false}), nil, mb)
	text := Text(r)
	require.Contains(t, text, "… and 4080 more runs")
	require.Less(t, len(text), 20_000)
	page, err := HTML([]*Report{r})
	require.NoError(t, err)
	require.Contains(t, string(page), "The last 3840 positions change too often to draw")
	require.Less(t, len(page), 2_000_000)
}

// keys are the keys of an object, with those of its nested objects.
func keys(v any, at string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			into[at+key] = true
			keys(inner, at+key+".", into)
		}
	case []any:
		for _, inner := range v {
			keys(inner, at, into)
		}
	}
}

func TestJSON(t *testing.T) {
	r := shown(t)
	b, err := json.Marshal(r)
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(b, &back))
	require.Equal(t, r, &back)
	var v any
	require.NoError(t, json.Unmarshal(b, &v))
	found := map[string]bool{}
	keys(v, "", found)
	for _, key := range strings.Fields(`name about data step steps microbatch microbatches dp_rank layout.tp layout.cp layout.dp layout.pp
		layout.sp batch.rows batch.positions batch.slots_per_rank masks.loss masks.depths masks.padding mode.calculate_per_token_loss
		mode.loss_normalization mode.mtp_loss_scaling_factor terms.term terms.depth terms.tokens terms.data_tokens terms.tokens_in_step
		terms.tokens_by_dp_rank terms.tokens_by_microbatch terms.factor terms.divisor_of terms.means terms.by_cp_rank.cp_rank
		terms.by_cp_rank.tokens terms.by_cp_rank.divisor terms.by_cp_rank.token_weight terms.router terms.router_valid_tokens
		terms.router_slots terms.router_leaks terms.router_skips rows.row rows.documents.start rows.documents.tokens
		rows.documents.place rows.document rows.offset rows.cp_rank rows.tp_rank rows.slot rows.terms.term rows.terms.input_ids
		rows.terms.input_text rows.terms.labels rows.terms.label_text rows.terms.loss_mask rows.terms.padding_mask
		rows.terms.position_ids rows.terms.state ranks.cp_rank ranks.inserted_slots ranks.rows.row ranks.rows.positions
		ranks.rows.document ranks.rows.chunk ranks.rows.offset ranks.rows.tp_rank ranks.rows.inserted_slots
		ranks.rows.terms.term notes`) {
		require.True(t, found[key], key)
	}
	require.Contains(t, string(b), `"state":["ignored","counted"`)
	mb := rowsOf(4, 4)
	mb.Pad = nil
	b, err = json.Marshal(reported(t, scenario(1, single), nil, mb))
	require.NoError(t, err)
	require.Contains(t, string(b), `"padding_mask":null`)
	require.Contains(t, string(b), `"tp_rank":null`)
	var s State
	require.EqualError(t, json.Unmarshal([]byte(`"what"`), &s), fmt.Sprintf(`explain: found state "what", expected one of %v`, stateNames))
}

func TestTokenText(t *testing.T) {
	for in, want := range map[string]string{"a": "a", " ": "␣", "\n": `\n`, "\t": `\t`, "\x00": `\x00`, "\xe2": `\xe2`, "é": "é", " the": "␣the",
		"\u200b": `\u200b`, "": "", "abcdefghijklmnop": "abcdefghijkl…"} {
		require.Equal(t, want, tokenText(in))
	}
}

func TestRuns(t *testing.T) {
	require.Equal(t, []string{"0–2 x,", "3 y"}, runWords([]string{"x", "x", "x", "y"}, func(s string) string { return s }))
	require.Equal(t, []string{"0–1,", "2 inserted,", "6–7"}, ascending([]int{0, 1, -1, -1, 6, 7}))
	require.Empty(t, ascending(nil))
	require.True(t, has([]int{1, 4, 9}, 4))
	require.False(t, has([]int{1, 4, 9}, 5))
	require.False(t, has(nil, 0))
}
