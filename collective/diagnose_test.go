package collective

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/mesh"
	"phalanx/nn"
)

// stuck runs programs until nothing moves and diagnoses.
func stuck(t *testing.T, s mesh.Sizes, programs func(rank int) []func(nn.Comm)) string {
	w := newWorld(s, programs)
	defer w.stop()
	w.run(func(int) int { return 0 })
	require.NoError(t, w.err)
	text := Diagnose(w.statuses())
	require.LessOrEqual(t, strings.Count(text, "\n")+1, diagnosisLines)
	return text
}

func do(c nn.Comm, a mesh.Axis, tag nn.Tag, layer int) {
	c.Do(allReduce(a, tag, nn.Site{Step: 1, Phase: nn.Forward, Layer: layer}, []float32{1}))
}

func TestDiagnoseFinishedRank(t *testing.T) {
	text := stuck(t, mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			do(c, mesh.TP, nn.TagEmbedding, -1)
			if rank == 0 {
				do(c, mesh.TP, nn.TagRowOutput, 0)
			}
		}}
	})
	require.Equal(t, "deadlock: rank 0 waits in tp all_reduce row_output (step 1 microbatch 0 forward layer 0) for rank 1; "+
		"rank 1 has finished its program (last collective at step 1 microbatch 0 forward)", text)
}

func TestDiagnoseCycleOverTwoAxes(t *testing.T) {
	text := stuck(t, mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			axes := []mesh.Axis{mesh.TP, mesh.DP}
			if rank == 0 || rank == 3 {
				axes = []mesh.Axis{mesh.DP, mesh.TP}
			}
			for _, a := range axes {
				do(c, a, nn.TagGradNorm, -1)
			}
		}}
	})
	require.Equal(t, strings.Join([]string{
		"deadlock: cycle: rank 0 waits in dp all_reduce grad_norm (step 1 microbatch 0 forward) for rank 2;",
		"  rank 2 waits in tp all_reduce grad_norm (step 1 microbatch 0 forward) for rank 3;",
		"  rank 3 waits in dp all_reduce grad_norm (step 1 microbatch 0 forward) for rank 1;",
		"  rank 1 waits in tp all_reduce grad_norm (step 1 microbatch 0 forward) for rank 0",
	}, "\n"), text)
}

// Rank 3 alone is the cause: 2 waits for it, 0 and 1 wait for those.
func TestDiagnoseBlamesNobodyWhoWaits(t *testing.T) {
	text := stuck(t, mesh.Sizes{TP: 2, CP: 1, DP: 2, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){func(c nn.Comm) {
			if rank == 3 {
				return
			}
			if rank == 2 {
				do(c, mesh.TP, nn.TagRowOutput, 0)
			}
			if rank == 1 {
				do(c, mesh.TP, nn.TagRowOutput, 0)
			}
			do(c, mesh.DP, nn.TagGradient, -1)
		}}
	})
	require.Equal(t, "deadlock: rank 2 waits in tp all_reduce row_output (step 1 microbatch 0 forward layer 0) for rank 3; "+
		"rank 3 has finished its program (before its first collective)\nwaiting for these: rank 0, rank 1", text)
}

func TestDiagnosePrograms(t *testing.T) {
	text := stuck(t, mesh.Sizes{TP: 2, CP: 1, DP: 1, PP: 1}, func(rank int) []func(nn.Comm) {
		return []func(nn.Comm){
			func(c nn.Comm) { c.Recv(1, "loss") },
			func(c nn.Comm) { c.Recv(2, "set") },
			func(c nn.Comm) {
				if rank == 0 {
					do(c, mesh.TP, nn.TagEHProjInput, 0)
				}
				c.Recv(0, "go")
			},
		}
	})
	require.Equal(t, strings.Join([]string{
		`deadlock: cycle: rank 1 waits for "loss" of its program mtp.1 (before its first collective);`,
		`  rank 1 program mtp.1 waits for "set" of its program mtp.2 (before its first collective);`,
		`  rank 1 program mtp.2 waits for "go" of its program stage (before its first collective)`,
		`waiting for these: rank 0, rank 0 program mtp.1, rank 0 program mtp.2`,
	}, "\n"), text)
}

func TestDiagnoseOddCases(t *testing.T) {
	require.Equal(t, "no deadlock: none of 0 programs waits", Diagnose(nil))
	require.Equal(t, "no deadlock: none of 1 programs waits", Diagnose([]Status{{State: Running}}))

	waits := Status{Rank: 0, State: InCollective, Op: "tp all_reduce flags", Site: site(0, -1), Missing: []int{1, 2}}
	text := Diagnose([]Status{waits, {Rank: 1, State: Running}})
	require.Equal(t, "deadlock: rank 0 waits in tp all_reduce flags (step 0 microbatch 0 forward) for rank 1; "+
		"rank 1 is computing (before its first collective)\n"+
		"rank 0 waits in tp all_reduce flags (step 0 microbatch 0 forward) for rank 2; nothing is known of rank 2", text)

	self := Diagnose([]Status{{Rank: 4, Program: 1, State: InReceive, From: 1, Name: "x", Site: site(2, -1)}})
	require.Equal(t, `deadlock: cycle: rank 4 program mtp.1 waits for "x" of its program mtp.1 (last collective at step 2 microbatch 0 forward)`, self)
}

func TestDiagnoseStaysShort(t *testing.T) {
	var all []Status
	for r := range 100 { // a ring of 50 and fifty that wait for it
		all = append(all, Status{Rank: r, State: InCollective, Op: "dp all_reduce gradient", Site: site(0, -1), Missing: []int{(r + 1) % 50}})
	}
	text := Diagnose(all)
	lines := strings.Split(text, "\n")
	require.LessOrEqual(t, len(lines), diagnosisLines, text)
	require.Contains(t, text, "… 44 more, the last for rank 0")
	require.Equal(t, "waiting for these: rank 50, rank 51, rank 52, rank 53, rank 54, rank 55 and 44 more", lines[len(lines)-1])

	all = nil
	for r := range 40 { // twenty pairs, each with a root of its own
		s := Status{Rank: r, State: Finished}
		if r%2 == 0 {
			s = Status{Rank: r, State: InCollective, Op: "tp all_reduce flags", Site: site(0, -1), Missing: []int{r + 1}}
		}
		all = append(all, s)
	}
	text = Diagnose(all)
	lines = strings.Split(text, "\n")
	require.Len(t, lines, diagnosisLines, text)
	require.Equal(t, "… 11 more lines", lines[diagnosisLines-1])
}
