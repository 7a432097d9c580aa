package megatron

import (
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/config"
	"phalanx/convert"
)

// FuzzScript: no script panics or hangs; every refusal is Problems; a scenario that comes out is legal.
func FuzzScript(f *testing.F) {
	f.Add("A=(--num-layers 2)\nif x; then A+=(--lr 1); fi\ntorchrun --nproc_per_node 2 p.py \"${A[@]}\" --save $1 $(date) ${X:-y} $((1+2))")
	f.Add(least)
	f.Add(least + "--num-experts 4 --moe-layer-freq [0,1] --vocab-size 9 --group-query-attention --bf16 --save a --load a --split 1,2,3 --data-path x")
	f.Add("A=x\nA=$A$A$A\nfor i in {1..9}; do A+=$i; done\neval \"$A\" {a,b}{c,d}")
	f.Add("export X=1 Y\ndeclare -a Z=([3]=4)\nfunction f() { X=2; }\ncase $X in a) X=3;; esac\n--num-layers $X <<EOF\nEOF\n")
	f.Fuzz(func(t *testing.T, src string) {
		l, err := Script("x.sh", []byte(src), nil)
		if err == nil {
			var text []byte
			if text, err = Scenario("x.sh", l); err == nil {
				_, problems := config.Parse("x.sh", text, nil)
				require.Empty(t, problems, "%s", text)
			}
		}
		if err != nil {
			var ps convert.Problems
			require.ErrorAs(t, err, &ps)
			require.NotEmpty(t, ps)
		}
	})
}
