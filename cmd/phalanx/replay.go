package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"phalanx/messages"
	"phalanx/replay"
	"phalanx/run"
	"phalanx/telemetry"
)

// replayFlags say what of a recording is run again.
type replayFlags struct {
	rank, from int
	stop, json string
}

func (a *app) replayVerb() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay DIR --rank R",
		Short: "runs one rank of a recorded run again, alone, and compares every message",
		Long: "Runs one rank of a run that was recorded (recovery.recording: true, run --out DIR) again, alone: its programs get what it received then, and\n" +
			"every message that it sends, its states at snapshots and its last weights must be what they were. Exit code 3: they are not.",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("phalanx replay: found %d arguments, expected the folder of one recorded run", len(args))
			}
			if !c.Flags().Changed("rank") {
				return usagef("phalanx replay: expected --rank R, the rank to be run again")
			}
			return a.replay(c.Context(), args[0], f)
		},
	}
	c.Flags().IntVar(&f.rank, "rank", 0, "the rank to be run again")
	c.Flags().IntVar(&f.from, "from-step", 0, "steps that are done where it begins: its last snapshot at or before them; 0 is the beginning of the run")
	c.Flags().StringVar(&f.stop, "stop-at", "", "HOOK or HOOK:COUNT: stop there and print where the rank stands")
	c.Flags().StringVar(&f.json, "json", "", "file for the result, one object; - is standard output")
	return c
}

// replay runs a rank again and prints what it finds.
func (a *app) replay(ctx context.Context, dir string, f replayFlags) error {
	j, err := telemetry.OpenJSON(f.json, a.stdout)
	if err != nil {
		return usagef("--json: %v", err)
	}
	out := a.lines(runFlags{json: f.json})
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	var start run.ReplayStart
	result, err := run.Replay(ctx, dir, run.ReplayOptions{Rank: f.rank, From: f.from, Stop: f.stop, Start: func(s run.ReplayStart) {
		start = s
		say("%s", beginning(s))
		for _, w := range s.Warnings {
			say("left out: %s", w)
		}
	}, Step: func(e messages.StepDone) { say("%s", replayedStep(e, start.Steps)) }})
	if err != nil {
		return err
	}
	for _, line := range found(start, result) {
		say("%s", line)
	}
	if err := j.Write(replayRecordOf(start, result)); err != nil {
		return err
	}
	if err := j.Close(); err != nil {
		return err
	}
	if result.Divergence != nil {
		return ended(run.ExitNotHeld)
	}
	return nil
}

// beginning says where a replay begins.
func beginning(s run.ReplayStart) string {
	from := "the beginning of the run"
	if s.From > 0 {
		from = fmt.Sprintf("step %d", s.From)
	}
	switch {
	case s.Asked < s.From:
		from += ", where what is recorded begins"
	case s.Asked > s.From:
		from += fmt.Sprintf(", the last snapshot at or before step %d", s.Asked)
	}
	return fmt.Sprintf("replay of rank %d of %s, recorded in %s, from %s", s.Rank, s.Name, lives(len(s.Lives)), from)
}

func lives(n int) string {
	if n == 1 {
		return "1 life"
	}
	return fmt.Sprintf("%d lives", n)
}

// replayedStep is a step of a replay: the rank's own share of the losses.
func replayedStep(e messages.StepDone, steps int) string {
	parts := []string{fmt.Sprintf("step %d of %d", e.Step+1, steps)}
	if e.Sums.LMTokens > 0 {
		parts = append(parts, fmt.Sprintf("lm loss of %d tokens here: %.6g", e.Sums.LMTokens, e.Sums.LMLoss/float64(e.Sums.LMTokens)))
	}
	return strings.Join(append(parts, fmt.Sprintf("grad norm: %.6g", e.GradNorm)), " | ")
}

// found is what a replay has found, in lines.
func found(s run.ReplayStart, r replay.Result) []string {
	var lines []string
	for _, err := range r.LeftOut {
		lines = append(lines, "left out: "+err.Error())
	}
	if d := r.Divergence; d != nil {
		lines = append(lines, fmt.Sprintf("DIVERGES in step %d: %s", d.Step+1, d.Error()))
	}
	switch {
	case r.Stopped != nil:
		lines = append(lines, standing(r)...)
	case r.Ended != "":
		lines = append(lines, r.Ended)
	}
	what := []string{fmt.Sprintf("%s sent as then", plural(r.Sent, "message")), fmt.Sprintf("%d received", r.Received)}
	if r.States > 0 {
		what = append(what, fmt.Sprintf("%s as then", plural(r.States, "state")))
	}
	if r.Weights {
		what = append(what, "the weights as then")
	}
	return append(lines, fmt.Sprintf("rank %d of %s: steps %d to %d: %s", r.Rank, s.Name, s.From, r.Steps, strings.Join(what, ", ")))
}

// standing says where a rank stands when its replay stops.
func standing(r replay.Result) []string {
	s := r.Stopped
	first := fmt.Sprintf("%s, in step %d", r.Ended, s.Step+1)
	if s.Microbatch >= 0 {
		first += fmt.Sprintf(", microbatch %d", s.Microbatch)
	}
	lines := []string{first}
	for _, p := range s.Programs {
		lines = append(lines, "  "+p.String())
	}
	for _, w := range s.Waits {
		lines = append(lines, "  waits for "+w.String())
	}
	for _, e := range s.Edges() {
		lines = append(lines, fmt.Sprintf("  has sent %s to rank %d on channel %#04x", plural(int(s.Next[e]), "message"), e.Peer, e.Chan))
	}
	return lines
}

// replayRecord is a replay as JSON.
type replayRecord struct {
	Name       string           `json:"name"`
	Rank       int              `json:"rank"`
	FromStep   int              `json:"from_step"`
	Steps      int              `json:"steps"`
	Lives      int              `json:"lives"`
	Verdict    string           `json:"verdict"` // same | diverges | stopped | ends
	Sent       int              `json:"sent"`
	Received   int              `json:"received"`
	States     int              `json:"states"`
	Weights    bool             `json:"weights"`
	Divergence *divergenceField `json:"divergence,omitempty"`
	Stopped    *stoppedField    `json:"stopped,omitempty"`
}

type divergenceField struct {
	What     string `json:"what"`
	Step     uint32 `json:"step"` // from 1
	Op       string `json:"op,omitempty"`
	Edge     string `json:"edge,omitempty"`
	Number   uint64 `json:"number"`
	Recorded string `json:"recorded_crc"`
	Replayed string `json:"replayed_crc"`
	Text     string `json:"text"`
}

type stoppedField struct {
	At         string    `json:"at"`
	Step       uint32    `json:"step"` // from 1
	Microbatch int       `json:"microbatch"`
	Programs   []string  `json:"programs"`
	Waits      []string  `json:"waits"`
	LMLoss     []float64 `json:"lm_loss"` // of the steps that are done, this rank's share
}

func replayRecordOf(s run.ReplayStart, r replay.Result) replayRecord {
	out := replayRecord{Name: s.Name, Rank: r.Rank, FromStep: s.From, Steps: int(r.Steps), Lives: len(s.Lives), Verdict: "same", Sent: r.Sent, Received: r.Received,
		States: r.States, Weights: r.Weights}
	if d := r.Divergence; d != nil {
		out.Verdict = "diverges"
		out.Divergence = &divergenceField{What: string(d.What), Step: d.Step + 1, Op: d.Name(), Edge: d.Edge.String(), Number: d.Number,
			Recorded: fmt.Sprintf("%08x", d.Recorded), Replayed: fmt.Sprintf("%08x", d.Replayed), Text: d.Error()}
	}
	if p := r.Stopped; p != nil {
		out.Verdict = "stopped"
		if p.At == "" {
			out.Verdict = "ends"
		}
		out.Stopped = &stoppedField{At: p.At, Step: p.Step + 1, Microbatch: p.Microbatch, Programs: []string{}, Waits: []string{}, LMLoss: []float64{}}
		for _, q := range p.Programs {
			out.Stopped.Programs = append(out.Stopped.Programs, q.String())
		}
		for _, w := range p.Waits {
			out.Stopped.Waits = append(out.Stopped.Waits, w.String())
		}
		for _, e := range p.Losses {
			out.Stopped.LMLoss = append(out.Stopped.LMLoss, e.Sums.LMLoss)
		}
	}
	return out
}
