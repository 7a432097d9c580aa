package megatron

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/convert"
)

func words(t *testing.T, src string, set map[string]string) []string {
	t.Helper()
	l, err := Script("x.sh", []byte(src), set)
	require.NoError(t, err)
	return texts(l.Args)
}

// TestScript: what bash would hand over, without running anything.
func TestScript(t *testing.T) {
	for _, c := range []struct {
		name, src, want string
		set             map[string]string
	}{
		{"one line", "torchrun --nnodes 1 pretrain_gpt.py --num-layers 2 --lr 1", "--num-layers 2 --lr 1", nil},
		{"continued", "python pretrain_gpt.py \\\n  --num-layers 2 \\\n  --lr 1 # why\n", "--num-layers 2 --lr 1", nil},
		{"variables", "N=2\nM=$N\npython p.py --num-layers ${M} --lr \"$N.5\"", "--num-layers 2 --lr 2.5", nil},
		{"array", "A=(--num-layers 2 # two\n --lr 1)\nA+=(--seed 3)\npython p.py \"${A[@]}\" --x", "--num-layers 2 --lr 1 --seed 3 --x", nil},
		{"string of arguments", "A=\"\n  --num-layers 2\n --lr 1\"\npython p.py $A", "--num-layers 2 --lr 1", nil},
		{"default", "python p.py --num-layers ${N:-4}", "--num-layers 4", nil},
		{"arithmetic", "N=3\npython p.py --num-layers $((N*2+1))", "--num-layers 7", nil},
		{"set by the caller", "N=3\npython p.py --num-layers $N --lr $L", "--num-layers 9 --lr 1", map[string]string{"N": "9", "L": "1"}},
		{"nobody's", "P=$1\npython p.py --num-layers 1 --save $P --x $(date) --y $Z", "--num-layers 1 --save $1 --x $(…) --y $Z", nil},
		{"other commands", "mkdir -p out && python p.py --num-layers 1 | tee log\npython other.py --x", "--num-layers 1", nil},
		{"eval", "C=\"python p.py --num-layers 1\"\neval $C", "--num-layers 1", nil},
		{"arguments alone", "--num-layers 2\n--lr 1 \\\n --seed 3\n", "--num-layers 2 --lr 1 --seed 3", nil},
		{"quotes", `python p.py --num-layers 1 --moe-layer-freq "([0]*1+[1]*3)" --x 'a b'`, "--num-layers 1 --moe-layer-freq ([0]*1+[1]*3) --x a b", nil},
		{"a value that a condition does not change", "N=1\nif true; then N=1; fi\npython p.py --num-layers $N", "--num-layers 1", nil},
		{"an option of the launcher", "srun python -u /x/pretrain_gpt.py --num-layers 1", "--num-layers 1", nil},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, strings.Join(words(t, c.src, c.set), " ")) })
	}
}

func TestScriptRefused(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"", "x.sh: found no command that runs a NAME.py with --num-layers"},
		{"echo hello", "found no command"},
		{"if [ 1 ]; then\n", "x.sh:1:11: the shell cannot read it"},
		{"python a.py --num-layers 1\npython b.py --num-layers 2", "x.sh:2:1: is a second command with --num-layers; the first is at x.sh:1:1"},
		{"N=1\nif [ $X = y ]; then\n  N=2\nfi\npython p.py --num-layers $N", "x.sh:5:26: uses a variable that is set under a condition at x.sh:3:3"},
		{"A=()\nfor i in 1 2; do A+=(--num-layers $i); done\npython p.py --num-layers 1 ${A[@]}", "set under a condition at x.sh:2:18"},
	} {
		_, err := Script("x.sh", []byte(c.src), nil)
		var ps convert.Problems
		require.ErrorAs(t, err, &ps, c.src)
		require.ErrorContains(t, err, c.want)
	}
	_, err := Script("x.sh", make([]byte, ScriptBytesMax+1), nil)
	require.ErrorContains(t, err, "found more than")
}

// TestPlaces: a word of an array stands where the array says it.
func TestPlaces(t *testing.T) {
	l, err := Script("x.sh", []byte("A=(\n  --num-layers 2\n)\ntorchrun --nproc_per_node 4 p.py ${A[@]} --lr 1"), nil)
	require.NoError(t, err)
	require.Equal(t, []Word{{"--num-layers", "x.sh:2:3"}, {"2", "x.sh:2:16"}, {"--lr", "x.sh:4:42"}, {"1", "x.sh:4:47"}}, l.Args)
	require.Equal(t, "torchrun", l.Launcher[0].Text)
	require.Equal(t, 4, worldSize(l.Launcher))
}

// TestBounded: doubling, braces and replacements do not fill memory.
func TestBounded(t *testing.T) {
	bomb := "A=xxxxxxxxxxxxxxxx\n" + strings.Repeat("A=$A$A\n", 60) + "B=(x x)\n" + strings.Repeat("B=(${B[@]} ${B[@]})\n", 60) +
		"python p.py --num-layers 1 --a $A --b ${B[@]} --c {1..999999999} --d " + strings.Repeat("{a,b}", 60) + " --e ${A//x/yyyyyyyyyyyyyy}"
	for _, w := range words(t, bomb, nil) {
		require.Less(t, len(w), 1<<20)
	}
}

func TestWorldSize(t *testing.T) {
	for text, want := range map[string]int{
		"torchrun --nproc_per_node 8 --nnodes 2 p.py": 16, "torchrun --nproc-per-node=4 p.py": 4, "torchrun --nproc_per_node gpu p.py": 0,
		"torchrun --nproc_per_node 8 --nnodes $N p.py": 0, "python p.py": 0, "srun --nodes 2 p.py": 0,
	} {
		var l []Word
		for _, w := range strings.Fields(text) {
			l = append(l, Word{Text: w})
		}
		require.Equal(t, want, worldSize(l), text)
	}
}
