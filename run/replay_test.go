package run_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/collective"
	"phalanx/config"
	"phalanx/messages"
	"phalanx/recording"
	"phalanx/replay"
	"phalanx/run"
)

// recorded runs moeRun with a recording and returns its folder.
func recorded(t *testing.T, overrides ...string) (dir string, report *run.Report) {
	t.Helper()
	dir = t.TempDir()
	report, err := trained(t, moeRun, run.Options{Out: dir}, append([]string{"recovery.snapshot_every=2", "recovery.recording=true"}, overrides...)...)
	require.NoError(t, err)
	return dir, report
}

func replayed(t *testing.T, dir string, o run.ReplayOptions) replay.Result {
	t.Helper()
	r, err := run.Replay(context.Background(), dir, o)
	require.NoError(t, err)
	return r
}

// faulty are two deaths of ranks 0 and 1.
const faulty = "faults=[{at: {rank: 1, hook: before-send, count: 20}, action: panic}, {at: {rank: 0, hook: before-apply, count: 25}, action: panic}]"

// Every rank of every layout, those that died too, can be run again alone: from the beginning and from a snapshot.
func TestReplayOnEveryLayout(t *testing.T) {
	for name := range cutsOf {
		if name == "one" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, report := recorded(t, on(name, faulty)...)
			require.Equal(t, 2, report.Restarts)
			require.Equal(t, filepath.Join(dir, "recording"), report.Recording.Path)
			require.Greater(t, report.Recording.Bytes, int64(10_000))
			require.Positive(t, report.Recording.TimeShare)
			sent, sentLate := 0, 0
			world := report.Recording.Ranks
			for rank := range world {
				whole := replayed(t, dir, run.ReplayOptions{Rank: rank})
				require.Nil(t, whole.Divergence, "rank %d", rank)
				require.EqualValues(t, 6, whole.Steps)
				require.Equal(t, 3, whole.States, "after steps 2, 4 and 6")
				require.True(t, whole.Weights)
				late := replayed(t, dir, run.ReplayOptions{Rank: rank, From: 5})
				require.Nil(t, late.Divergence)
				require.EqualValues(t, 4, late.From)
				require.Equal(t, 1, late.States)
				require.True(t, late.Weights)
				require.Less(t, late.Sent, whole.Sent)
				sent, sentLate = sent+whole.Sent, sentLate+late.Sent
			}
			require.Equal(t, 3*sentLate, sent, "every step sends as many messages, and 2 of 6 are late")
		})
	}
}

// A run that goes on from a checkpoint, and one that is observed: their gathering of gradients is part of what ranks send.
func TestReplayOfWhatGoesOn(t *testing.T) {
	saved := t.TempDir()
	mustTrain(t, moeRun, on("ep2 dp2", noGlobalAux, "model.moe_aux_loss_coeff=[0.01]", "train.train_iters=3", "checkpoint.save="+saved)...)
	dir, _ := recorded(t, on("ep2 dp2", "checkpoint.load="+saved, "checkpoint.save=more", "expect=[{quantity: lm.loss, finite: true}, {same_as: single_rank, tolerance: 1.0e-6}]", noGlobalAux, "model.moe_aux_loss_coeff=[0.01]")...)
	for rank := range 2 {
		r := replayed(t, dir, run.ReplayOptions{Rank: rank})
		require.Nil(t, r.Divergence)
		require.EqualValues(t, 0, r.From)
		require.True(t, r.Weights)
		require.Equal(t, 2, r.States)
	}
	require.NoError(t, os.RemoveAll(saved))
	r := replayed(t, dir, run.ReplayOptions{Rank: 1, From: 4})
	require.Nil(t, r.Divergence)
	require.True(t, r.Weights)
	_, err := run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1, From: 3})
	require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	require.ErrorContains(t, err, saved)
	require.ErrorContains(t, err, "is gone, which the run began with; begin at a snapshot: --from-step one of [4 6]")
}

// A run that was asked to stop ends after fewer steps than its scenario says, and so does its replay.
func TestReplayOfWhatWasStopped(t *testing.T) {
	dir := t.TempDir()
	stop := make(chan struct{})
	_, err := trained(t, moeRun, run.Options{Out: dir, Stop: stop, Listen: run.Listener{Step: func(s run.StepFigures, _ run.Timing) {
		if s.Step == 2 {
			close(stop)
		}
	}}}, on("tp2 sp ep2", "recovery.snapshot_every=2", "recovery.recording=true", "checkpoint.save=saved", "train.train_iters=500")...)
	require.Equal(t, run.ExitInterrupted, run.ExitCode(err), "%v", err)
	var steps []uint32
	for rank := range 2 {
		r := replayed(t, dir, run.ReplayOptions{Rank: rank})
		require.Nil(t, r.Divergence)
		require.Nil(t, r.Stopped)
		require.Less(t, r.Steps, uint32(500))
		require.GreaterOrEqual(t, r.Steps, uint32(2))
		require.False(t, r.Weights, "they are shown after the last step of the scenario")
		steps = append(steps, r.Steps)
	}
	require.Equal(t, steps[0], steps[1])
}

// record is one record of a life: its kind, and of a message header and payload.
type record struct {
	kind    byte
	h       messages.Header
	payload []byte
	rest    []byte // of other kinds
}

// lifeFile is the file of a life, to be changed.
type lifeFile struct {
	path    string
	head    []byte
	records []record
}

func lifeOf(t *testing.T, dir string, rank, inc int) *lifeFile {
	t.Helper()
	f := &lifeFile{path: filepath.Join(dir, "recording", fmt.Sprintf("rank-%05d.inc-%010d.recording", rank, inc))}
	b, err := os.ReadFile(f.path)
	require.NoError(t, err)
	f.head, b = b[:32], b[32:]
	for len(b) > 0 {
		r := record{kind: b[0]}
		b = b[1:]
		switch n := map[byte]int{'b': 8, 'w': 36, 'd': 4}[r.kind]; {
		case n > 0:
			r.rest, b = b[:n], b[n:]
		default:
			r.h, err = messages.Decode(b)
			require.NoError(t, err)
			b = b[messages.HeaderSize:]
			if r.kind == 'r' {
				r.payload, b = b[:r.h.Len], b[r.h.Len:]
			}
		}
		f.records = append(f.records, r)
	}
	return f
}

func (f *lifeFile) write(t *testing.T) {
	t.Helper()
	b := bytes.NewBuffer(bytes.Clone(f.head))
	for _, r := range f.records {
		b.WriteByte(r.kind)
		if r.rest != nil || r.kind == 'd' {
			b.Write(r.rest)
			continue
		}
		var h [messages.HeaderSize]byte
		r.h.Encode(h[:])
		b.Write(h[:])
		b.Write(r.payload)
	}
	require.NoError(t, os.WriteFile(f.path, b.Bytes(), 0o600))
}

// find is the place of a message of a kind and step, some way into them.
func (f *lifeFile) find(t *testing.T, kind byte, step uint32, nth int) int {
	t.Helper()
	for i, r := range f.records {
		if r.kind == kind && r.h.Step == step && len(r.payload) > 0 == (kind == 'r') {
			if nth--; nth < 0 {
				return i
			}
		}
	}
	t.Fatalf("no such message")
	return 0
}

// copied is a recording that a test may change.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// What was changed in a recording is found at that message.
func TestReplayFindsChanges(t *testing.T) {
	source, _ := recorded(t, on("tp2 sp ep2")...)
	quiet := replayed(t, source, run.ReplayOptions{Rank: 1})
	require.Nil(t, quiet.Divergence)

	t.Run("a sent message", func(t *testing.T) {
		for _, nth := range []int{0, 7, 30} {
			dir := copied(t, source)
			f := lifeOf(t, dir, 1, 1)
			i := f.find(t, 's', 3, nth)
			h := &f.records[i].h
			was := h.PayloadCRC
			h.PayloadCRC ^= 1
			f.write(t)
			d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
			require.NotNil(t, d)
			require.Equal(t, replay.OfMessage, d.What)
			require.Equal(t, *h, d.Header)
			require.Equal(t, h.Log, d.Number)
			require.Equal(t, was, d.Replayed)
			require.Equal(t, was^1, d.Recorded)
			require.Equal(t, collective.NameIn(*h).String(), d.Name())
			require.Contains(t, d.Error(), fmt.Sprintf("message %d of edge 0/%#04x, %s, had crc %08x and has %08x", h.Log, h.Chan, d.Name(), was^1, was))
		}
	})
	t.Run("a name", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		h := &f.records[f.find(t, 's', 2, 4)].h
		h.Microbatch += 9
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, h.Log, d.Number)
		require.Contains(t, d.Error(), "it is now ")
	})
	// The rank computes with another input: nothing before that step differs, and something of that step does.
	t.Run("an input", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		r := &f.records[f.find(t, 'r', 3, 12)]
		r.payload = bytes.Clone(r.payload)
		r.payload[len(r.payload)-2] ^= 0x10 // high bits of an fp64
		r.h.Seal(r.payload)
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfMessage, d.What)
		require.EqualValues(t, 3, d.Step)
		require.GreaterOrEqual(t, d.Header.Microbatch, r.h.Microbatch)
		require.NotEqual(t, d.Recorded, d.Replayed)
	})
	t.Run("a flipped byte", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		r := &f.records[f.find(t, 'r', 3, 12)]
		r.payload = bytes.Clone(r.payload)
		r.payload[0] ^= 1
		f.write(t)
		_, err := run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1})
		var damage *recording.DamageError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, r.h, *damage.Header)
		require.ErrorContains(t, err, fmt.Sprintf("is damaged: payload checksum: found %#x, expected %#x; it is message %d of edge 0/%#04x",
			messages.Checksum(r.payload), r.h.PayloadCRC, r.h.Log, r.h.Chan))
		require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	})
	t.Run("a missing input", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		i := f.find(t, 'r', 4, 3)
		h := f.records[i].h
		f.records = append(f.records[:i:i], f.records[i+1:]...)
		f.write(t)
		_, err := run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1})
		require.Equal(t, run.ExitBadInput, run.ExitCode(err))
		require.ErrorContains(t, err, fmt.Sprintf("the recording lacks message %d of edge 0/%#04x that rank 1 has received, and maybe more (it is gone from the middle of life 1)", h.Log, h.Chan))
	})
	t.Run("an input that nobody has sent", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		var last int // of all that it received: nothing says that there was more
		for i, r := range f.records {
			if r.kind == 'r' {
				last = i
			}
		}
		h := f.records[last].h
		f.records = append(f.records[:last:last], f.records[last+1:]...)
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfInput, d.What)
		require.Equal(t, h.Log, d.Number)
		require.Equal(t, h.Chan, d.Edge.Chan)
		require.Contains(t, d.Error(), "it waits for message ")
	})
	t.Run("a message more and one less", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		var last int
		for i, r := range f.records {
			if r.kind == 's' {
				last = i
			}
		}
		more := f.records[last]
		more.h.Log++
		f.records = append(f.records, more)
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfLess, d.What)
		require.Equal(t, more.h.Log, d.Number)
		f.records = append(f.records[:last:last], f.records[last+1:len(f.records)-1]...)
		f.write(t)
		d = replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfMore, d.What)
		require.Equal(t, more.h.Log-1, d.Number)
	})
	t.Run("the weights", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		for i, r := range f.records {
			if r.kind == 'w' {
				b := bytes.Clone(r.rest[:32])
				b[3]++
				f.records[i].rest = guarded('w', b)
			}
		}
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfWeights, d.What)
	})
	t.Run("another life", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		f.path = strings.Replace(f.path, "inc-0000000001", "inc-0000000002", 1)
		f.head = lifeHead(f.head, 2)
		h := &f.records[f.find(t, 's', 3, 5)].h
		h.PayloadCRC ^= 2
		f.write(t)
		d := replayed(t, dir, run.ReplayOptions{Rank: 1}).Divergence
		require.NotNil(t, d)
		require.Equal(t, replay.OfLives, d.What)
		require.Equal(t, h.Log, d.Number)
	})
	t.Run("the end is cut off", func(t *testing.T) {
		dir := copied(t, source)
		f := lifeOf(t, dir, 1, 1)
		i := f.find(t, 'r', 4, 3)
		h := f.records[i].h
		f.records = f.records[:i]
		f.write(t)
		r := replayed(t, dir, run.ReplayOptions{Rank: 1})
		require.Nil(t, r.Divergence)
		require.NotNil(t, r.Stopped)
		require.Equal(t, "the recording ends here", r.Ended)
		require.EqualValues(t, 4, r.Stopped.Step)
		require.Equal(t, h.Log, r.Stopped.Waits[0].Number)
		require.Len(t, r.Stopped.Losses, 4)
	})
}

// guarded is a record of a few numbers with its checksum, as the format says.
func guarded(kind byte, body []byte) []byte {
	crc := messages.Checksum(append([]byte{kind}, body...))
	return append(body, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
}

// lifeHead is the head of a file with another incarnation.
func lifeHead(head []byte, inc byte) []byte {
	b := bytes.Clone(head[:28])
	b[20] = inc
	crc := messages.Checksum(b)
	return append(b, byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
}

// as changes the scenario of a recording and makes it one of that scenario, as a program that computes something else would.
func as(t *testing.T, dir, from, to string) {
	t.Helper()
	folder := filepath.Join(dir, "recording")
	text, err := os.ReadFile(filepath.Join(folder, "scenario.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(text), from)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "scenario.yaml"), bytes.Replace(text, []byte(from), []byte(to), 1), 0o600))
	_, err = run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1})
	require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	var build, was string
	_, scanErr := fmt.Sscanf(err.Error()[strings.Index(err.Error(), ": ")+2:], "found a scenario of build %16s, the recording is of %16s", &build, &was)
	require.NoError(t, scanErr, "%v", err)
	runFile := filepath.Join(folder, "run.json")
	text, err = os.ReadFile(runFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(runFile, bytes.Replace(text, []byte(was), []byte(build), 1), 0o600))
	_, err = run.Replay(context.Background(), dir, run.ReplayOptions{Rank: 1})
	require.ErrorContains(t, err, "found build "+was+", expected "+build, "the files of lives say it too")
	require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	files, err := filepath.Glob(filepath.Join(folder, "*.recording"))
	require.NoError(t, err)
	for _, path := range files {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		var id uint64
		_, err = fmt.Sscanf(build, "%x", &id)
		require.NoError(t, err)
		for i := range 8 {
			b[8+i] = byte(id >> (8 * i))
		}
		require.NoError(t, os.WriteFile(path, append(lifeHead(b[:32], b[20]), b[32:]...), 0o600))
	}
}

// A program that computes something else is found at the first message that differs.
func TestReplayByAnotherProgram(t *testing.T) {
	source, _ := recorded(t, on("tp2 sp ep2")...)
	for _, c := range []struct {
		name, from, to string
		step           uint32
		number         int // on the channel of the stage; -1: any
	}{
		{"another seed", "seed: 1234", "seed: 1235", 0, 0},
		{"another learning rate", "  lr: 0.01\n", "  lr: 0.0100001\n", 2, -1}, // the warm-up begins at rate 0: the first update changes nothing
		{"another weight decay", "weight_decay: 0.1\n", "weight_decay: 0.1000001\n", 2, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copied(t, source)
			as(t, dir, c.from, c.to)
			r := replayed(t, dir, run.ReplayOptions{Rank: 1})
			d := r.Divergence
			require.NotNil(t, d)
			require.Equal(t, replay.OfMessage, d.What)
			require.Equal(t, c.step, d.Step, d.Error())
			require.Equal(t, c.step > 1, len(r.LeftOut) > 0, "snapshots of the first program say that they are")
			if c.number >= 0 {
				require.EqualValues(t, c.number, d.Number)
			}
		})
	}
}

// A replay stops where it is told to, after the passages that are asked for.
func TestReplayStops(t *testing.T) {
	dir, _ := recorded(t, on("tp2 sp ep2")...)
	whole := replayed(t, dir, run.ReplayOptions{Rank: 1})
	for hook, n := range map[string]int{"before-send": 10, "after-send": 10, "before-apply": 12, "before-snapshot": 2} {
		r := replayed(t, dir, run.ReplayOptions{Rank: 1, Stop: fmt.Sprintf("%s:%d", hook, n)})
		require.Nil(t, r.Divergence)
		require.NotNil(t, r.Stopped, hook)
		switch hook {
		case "before-send":
			require.Equal(t, n-1, r.Sent)
		case "after-send":
			require.Equal(t, n, r.Sent)
		case "before-apply":
			require.Equal(t, n-1, r.Received)
			require.NotEmpty(t, r.Stopped.Waits)
		case "before-snapshot":
			require.EqualValues(t, 4, r.Stopped.Step)
			require.Len(t, r.Stopped.Losses, 4)
		}
		require.NotEmpty(t, r.Stopped.Programs)
	}
	// Of a step there are four microbatches, one pass of a layer in each, one reduction and one update.
	for hook, at := range map[string][2]int{"layer.1.forward:6": {1, 1}, "mtp.2.backward:12": {2, 3}, "mtp.1.forward": {0, 0}, "mid-optimizer:3": {2, -1}, "grad-reduce:6": {5, -1}} {
		r := replayed(t, dir, run.ReplayOptions{Rank: 1, Stop: hook})
		require.Nil(t, r.Divergence)
		require.NotNil(t, r.Stopped, hook)
		require.EqualValues(t, at[0], r.Stopped.Step, hook)
		require.Equal(t, at[1], r.Stopped.Microbatch, hook)
		require.Len(t, r.Stopped.Losses, at[0], hook)
	}
	r := replayed(t, dir, run.ReplayOptions{Rank: 1, From: 2, Stop: "after-restart"})
	require.NotNil(t, r.Stopped)
	require.Zero(t, r.Sent)
	r = replayed(t, dir, run.ReplayOptions{Rank: 1, Stop: "before-send:1000000"})
	require.Nil(t, r.Stopped, "it does not come by so often")
	require.Equal(t, fmt.Sprintf("the rank came by before-send %d times, not 1000000: it was not stopped", r.Sent), r.Ended)
	r.Ended = ""
	require.Equal(t, whole, r)
}

func TestReplayRefuses(t *testing.T) {
	dir, _ := recorded(t, on("pp2")...)
	for text, o := range map[string]run.ReplayOptions{
		"--rank: found 2, the run had ranks 0 to 1":                                                      {Rank: 2},
		"--from-step: found 7, expected 0 to 6":                                                          {From: 7},
		"--from-step: found -1, expected 0 to 6":                                                         {From: -1},
		`--stop-at: found "x", expected one of before-send`:                                              {Stop: "x"},
		`--stop-at: found passage "0" of before-send, expected a number from 1`:                          {Stop: "before-send:0"},
		`--stop-at: found passage "two" of before-send, expected a number from 1`:                        {Stop: "before-send:two"},
		"--stop-at: found layer.9.forward, expected a layer from 0 to 1":                                 {Stop: "layer.9.forward"},
		"--stop-at: found mtp.0.backward, expected a depth from 1 to 2":                                  {Stop: "mtp.0.backward:2"},
		"--stop-at: rank 0 is on pipeline stage 0 and never comes by mtp.1.forward, which is on stage 1": {Stop: "mtp.1.forward"},
	} {
		_, err := run.Replay(context.Background(), dir, o)
		require.ErrorContains(t, err, text)
		require.Equal(t, run.ExitBadInput, run.ExitCode(err))
	}
	_, err := run.Replay(context.Background(), t.TempDir(), run.ReplayOptions{})
	require.ErrorContains(t, err, "no recording; record one with")
	_, err = run.Replay(context.Background(), filepath.Join(dir, "no"), run.ReplayOptions{})
	require.ErrorContains(t, err, "no such folder; name the --out folder of a run with recovery.recording: true")
	runFile := filepath.Join(dir, "recording", "run.json")
	text, err := os.ReadFile(runFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(runFile, bytes.Replace(text, []byte(`"source": "`), []byte(`"source": "v9 `), 1), 0o600))
	_, err = run.Replay(context.Background(), dir, run.ReplayOptions{})
	require.ErrorContains(t, err, `it was recorded by "v9 `)
	require.ErrorContains(t, err, "replay it with the program that recorded it")

	file, problems := config.Parse("x.yaml", []byte(moeRun), on("pp2", "recovery.snapshot_every=2", "recovery.recording=true"))
	require.Empty(t, problems)
	_, err = run.Execute(context.Background(), file.Runs()[0], run.Options{})
	require.ErrorContains(t, err, "recovery.recording: a recording needs a folder; name one with --out DIR")
	require.Equal(t, run.ExitBadInput, run.ExitCode(err))
}
