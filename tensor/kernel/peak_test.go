package kernel

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFMAPeakCounts: rounds times the multiply-adds of a round, an FMA being two operations.
func TestFMAPeakCounts(t *testing.T) {
	for path, perRound := range map[Path]float64{Portable: 2 * 4, AVX2: 2 * 12 * 8, AVX512: 2 * 12 * 16} {
		if path > Best() {
			continue
		}
		for _, iters := range []int{0, 1, 7, peakRounds, peakRounds + 1, 3 * peakRounds} {
			require.Equal(t, float64(iters)*perRound, FMAPeak(path, iters), "%s, %d rounds", path, iters)
		}
		require.Zero(t, FMAPeak(path, -5), path)
	}
	require.Equal(t, FMAPeak(Best(), 3), FMAPeak(AVX512, 3), "a path that this CPU lacks counts as its best")
}

// asmFunctions are the functions of an assembly file by name.
func asmFunctions(t *testing.T, file string) map[string]string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range strings.Split(string(text), "\nTEXT ")[1:] {
		name, _, ok := strings.Cut(f, "(SB)")
		require.True(t, ok)
		out[strings.TrimPrefix(name, "·")] = f
	}
	require.NotEmpty(t, out)
	return out
}

// TestPeakLoopsDoWhatTheyCount looks into the assembly: 12 independent multiply-adds between the label and the jump.
func TestPeakLoopsDoWhatTheyCount(t *testing.T) {
	functions := asmFunctions(t, "gemm_amd64.s")
	for name, register := range map[string]string{"peakAVX2": "Y", "peakAVX512": "Z"} {
		_, loop, ok := strings.Cut(functions[name], "loop:")
		require.True(t, ok, name)
		loop, _, _ = strings.Cut(loop, "JNE")
		fma := regexp.MustCompile(`VFMADD231PS\s+`+register+`12, `+register+`13, (`+register+`\d+)\n`).FindAllStringSubmatch(loop, -1)
		targets := map[string]bool{}
		for _, m := range fma {
			targets[m[1]] = true
		}
		require.Len(t, fma, 12, name)
		require.Len(t, targets, 12, "%s: chains depend on each other", name)
	}
}

// TestAssemblyCleansUp: every return is right after VZEROUPPER, or later Go code in SSE would crawl, and no function
// has a frame, calls, or can be asked to grow the stack.
func TestAssemblyCleansUp(t *testing.T) {
	for name, f := range asmFunctions(t, "gemm_amd64.s") {
		lines := strings.Split(f, "\n")
		require.Contains(t, lines[0], "NOSPLIT, $0-", name)
		require.NotContains(t, f, "CALL", name)
		returns := 0
		for i, line := range lines {
			if strings.TrimSpace(line) == "RET" {
				returns++
				require.Equal(t, "VZEROUPPER", strings.TrimSpace(lines[i-1]), name)
			}
		}
		require.Positive(t, returns, name)
	}
}
