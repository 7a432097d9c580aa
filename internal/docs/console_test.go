package docs

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
)

var (
	perplexity = regexp.MustCompile(`lm loss value: (\S+) \| lm loss PPL: (\S+) \|`)
	expected   = regexp.MustCompile(`(?m)^expect (\S+) below (\S+): holds, got (\S+)$`)
)

// TestQuickstartBlock: what the README shows of its first command, which takes too long to be run here, agrees with the scenario
// and with itself: the scenario's expectations, in order, figures as the program writes them, the loss and its perplexity.
func TestQuickstartBlock(t *testing.T) {
	_, block, ok := strings.Cut(read(t, "README.md"), "```console\n")
	require.True(t, ok)
	block, _, _ = strings.Cut(block, "```")
	file, problems := config.Load(filepath.Join(root, "scenarios/quickstart.yaml"), nil)
	require.Empty(t, problems)
	s := file.Runs()[0]
	got := map[string]float64{}
	shown := expected.FindAllStringSubmatch(block, -1)
	for _, e := range s.Expect {
		if e.Below == nil {
			continue
		}
		require.NotEmpty(t, shown, "the README shows no line of %s", e.Quantity)
		m := shown[0]
		shown = shown[1:]
		require.Equal(t, []string{e.Quantity, fmt.Sprint(*e.Below)}, m[1:3])
		x, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		require.Equal(t, strconv.FormatFloat(x, 'g', 10, 64), m[3], "figures are written without zeros at their end")
		require.Less(t, x, *e.Below)
		got[e.Quantity] = x
	}
	require.Empty(t, shown)
	m := perplexity.FindStringSubmatch(block)
	require.NotNil(t, m)
	loss := got["validation.lm.loss"]
	require.Equal(t, []string{fmt.Sprintf("%.6E", loss), fmt.Sprintf("%.6E", math.Exp(loss))}, m[1:], "the perplexity is exp of the loss")
	require.Contains(t, block, fmt.Sprintf("validation loss at iteration %d ", s.Train.TrainIters))
	require.Contains(t, block, fmt.Sprintf("%s: pass | %d steps |", s.Name, s.Train.TrainIters))
}
