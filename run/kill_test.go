package run

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"phalanx/config"
	"phalanx/messages"
)

// TestMain lets the test's binary be a process of a run, as the program is with its hidden verbs.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		if process, ok := map[string]func(context.Context, string) error{"worker": beWorker, "supervisor": beSupervisor, "nats-server": beServer}[os.Args[1]]; ok {
			ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			if err := process(ctx, os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(ExitCode(err))
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

func beWorker(ctx context.Context, dir string) error {
	worker, _ := strconv.Atoi(os.Args[4])
	inc, _ := strconv.Atoi(os.Args[6])
	o := WorkerOptions{Dir: dir, Worker: worker, Incarnation: uint32(inc), Exit: os.Exit}
	if len(os.Args) > 8 {
		if err := o.End.UnmarshalText([]byte(os.Args[8])); err != nil {
			return err
		}
	}
	return Work(ctx, o)
}

func beSupervisor(ctx context.Context, dir string) error {
	index, _ := strconv.Atoi(os.Args[4])
	return Supervise(ctx, dir, index, zap.NewNop())
}

func beServer(ctx context.Context, dir string) error {
	index, _ := strconv.Atoi(os.Args[4])
	return ServeNATS(ctx, dir, index, zap.NewNop())
}

// killSteps is the length of a run that so many kills are spread over.
func killSteps(kills int) int { return max(24, kills) }

// killScenarios train four ranks in processes of their own.
var killScenarios = map[string]string{
	"tp2-sp-cp2": `
name: kill-tp-cp
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 64, mtp_num_layers: 1, tensor_model_parallel_size: 2,
        sequence_parallel: true, context_parallel_size: 2}
train: {train_iters: 24, micro_batch_size: 1, global_batch_size: 2, dtype: fp32, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 32}
recovery: {snapshot_every: 3, rank_restarts: 1000, job_restarts: 1000, restart_window_s: 1}
`,
	"pp2-dp2": `
name: kill-pp-dp
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, padded_vocab_size: 64, mtp_num_layers: 1, num_moe_experts: 4,
        moe_ffn_hidden_size: 16, moe_router_topk: 2, moe_router_load_balancing_type: aux_loss, moe_aux_loss_coeff: 0.01,
        pipeline_model_parallel_size: 2, expert_model_parallel_size: 2}
train: {train_iters: 24, micro_batch_size: 1, global_batch_size: 4, dtype: fp32, threads: 1}
optimizer: {lr: 0.01}
dataset: {kind: synthetic, seq_length: 16}
dist: {world_size: 4}
recovery: {snapshot_every: 2, rank_restarts: 1000, job_restarts: 1000, restart_window_s: 1}
`}

func killScenario(t *testing.T, layout string, kills int, overrides ...string) config.Scenario {
	t.Helper()
	overrides = append(overrides, fmt.Sprintf("train.train_iters=%d", killSteps(kills)))
	file, problems := config.Parse(layout, []byte(killScenarios[layout]), overrides)
	require.Empty(t, problems)
	return file.Runs()[0]
}

// quietHash is the hash of the weights of a run in one process.
func quietHash(t *testing.T, layout string, kills int) string {
	t.Helper()
	s := killScenario(t, layout, kills, "transport.colocated=direct", "recovery.snapshot_every=0")
	r, err := Execute(context.Background(), s, Options{})
	require.NoError(t, err)
	return r.WeightsSHA256
}

// killer kills processes of a run when it has come to certain steps.
type killer struct {
	t     *testing.T
	j     *job
	rng   *rand.Rand
	kills int
	did   int
	steps int
	modes []func(*killer)
	done  []string
}

// step is told of every step. Kills are spread over the run.
func (k *killer) step(s StepFigures, _ Timing) {
	for due := k.kills * s.Step / k.steps; k.did < due; k.did++ {
		time.Sleep(time.Duration(k.rng.IntN(40)) * time.Millisecond)
		k.modes[k.rng.IntN(len(k.modes))](k)
	}
}

// pids are the workers' processes.
func (k *killer) pids() (pids []int) {
	l := k.j.launched
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.spawn.Procs {
		pids = append(pids, l.watched.signs[w].beat.PID)
	}
	return pids
}

// some does something to n of the workers, chosen at random.
func (k *killer) some(n int, what string, do func(pid int) error) {
	pids := k.pids()
	for _, i := range k.rng.Perm(len(pids))[:n] {
		if pids[i] > 0 {
			_ = do(pids[i]) // it may be dead
		}
		k.done = append(k.done, fmt.Sprintf("%s of worker %d", what, i))
	}
}

// kill ends a process at once.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func killOne(k *killer)  { k.some(1, "kill", kill) }
func killSome(k *killer) { k.some(1+k.rng.IntN(4), "kill", kill) }
func killAll(k *killer)  { k.some(4, "kill", kill) }
func stopOne(k *killer)  { k.some(1, "stop", suspend) }
func killServer(k *killer) {
	servers := k.j.launched.servers
	i := k.rng.IntN(len(servers))
	servers[i].kill()
	k.done = append(k.done, fmt.Sprintf("nats-%d", i+1))
}

func killLeader(k *killer) {
	l := k.j.launched
	if len(l.minders) > 0 {
		i := k.rng.IntN(len(l.minders))
		l.minders[i].kill()
		k.done = append(k.done, fmt.Sprintf("supervisor %d", i+1))
	}
}

// killed trains with kills and returns the report.
func killed(t *testing.T, s config.Scenario, kills int, seed uint64, modes ...func(*killer)) (*Report, *killer) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	k := &killer{t: t, rng: rand.New(rand.NewPCG(seed, 7)), kills: kills, steps: s.Train.TrainIters, modes: modes}
	var err error
	k.j, err = newJob(s, Options{Procs: 4, Self: []string{os.Args[0]}, Listen: Listener{Step: k.step}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute+time.Duration(kills)*10*time.Second)
	defer cancel()
	r, err := k.j.run(ctx)
	require.NoError(t, err, "after %v", k.done)
	requireNoProcess(t, k.j.launched.dir)
	return r, k
}

// requireNoProcess looks for processes of a run that is over.
func requireNoProcess(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("pgrep", "-f", dir).Output()
	require.Error(t, err, "processes are left: %s", out)
}

// kills is the number of kills of a test: in a soak many more.
func kills(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("PHALANX_SOAK_KILLS")); err == nil {
		return n
	}
	return usual
}

// Ranks in processes of their own, killed at random: every run ends with the bits of a quiet one.
func TestKilledProcesses(t *testing.T) {
	for _, layout := range []string{"tp2-sp-cp2", "pp2-dp2"} {
		t.Run(layout, func(t *testing.T) {
			n := kills(20)
			want := quietHash(t, layout, n)
			r, _ := killed(t, killScenario(t, layout, n), n, 1, killOne)
			require.Equal(t, want, r.WeightsSHA256)
			require.Positive(t, r.Restarts)
			require.Len(t, r.RecoveryMs, len(r.Recoveries))
			require.Positive(t, r.Links.Lost)
			require.Zero(t, r.Links.Corrupt)
			require.Len(t, r.Steps, killSteps(n))
			t.Logf("%d restarts, %d messages given again; %+v", r.Restarts, r.Replayed, r.Recoveries)
		})
	}
}

// Several ranks at once up to all, stopped ones, servers of a cluster and supervisors.
func TestKilledServersAndSupervisors(t *testing.T) {
	for _, layout := range []string{"tp2-sp-cp2", "pp2-dp2"} {
		t.Run(layout, func(t *testing.T) {
			n := kills(6)
			want := quietHash(t, layout, n)
			s := killScenario(t, layout, n, "transport.servers=3", "recovery.supervisors=3")
			r, k := killed(t, s, n, 2, killSome, stopOne, killServer, killLeader)
			require.Equal(t, want, r.WeightsSHA256, "%v", k.done)
			t.Logf("%v: %d restarts", k.done, r.Restarts)
		})
	}
}

// A NATS server that stands still for good is replaced, and whoever asks meanwhile is told who waits for whom.
func TestServerThatStandsStill(t *testing.T) {
	want := quietHash(t, "tp2-sp-cp2", 0)
	ask := make(chan struct{}, 1)
	var mu sync.Mutex
	var lines []string
	var once sync.Once
	stop := func(k *killer) {
		once.Do(func() {
			c := k.j.launched.servers[0]
			c.mu.Lock()
			pid := c.process.PID()
			c.mu.Unlock()
			require.NoError(t, suspend(pid))
			ask <- struct{}{}
		})
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	k := &killer{t: t, rng: rand.New(rand.NewPCG(5, 7)), kills: 1, steps: killSteps(0) / 2, modes: []func(*killer){stop}}
	var err error
	k.j, err = newJob(killScenario(t, "tp2-sp-cp2", 0), Options{Procs: 4, Self: []string{os.Args[0]}, Ask: ask,
		Listen: Listener{Step: k.step, Event: func(e messages.Event) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, e.String())
		}}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	r, err := k.j.run(ctx)
	require.NoError(t, err)
	require.Equal(t, want, r.WeightsSHA256)
	require.Greater(t, k.j.launched.servers[0].lives(), 1)
	require.Len(t, r.Pace, 4)
	mu.Lock()
	defer mu.Unlock()
	require.Regexp(t, `(?m)^rank 3 \(tp 1 cp 1\) `, strings.Join(lines, "\n"))
	requireNoProcess(t, k.j.launched.dir)
}
