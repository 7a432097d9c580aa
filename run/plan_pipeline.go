package run

import (
	"fmt"
	"strings"

	"phalanx/config"
	"phalanx/mesh"
	"phalanx/nn"
	"phalanx/train"
)

// Limits of what a plan prints and checks: a line that people read, and passes that are checked in a second.
const (
	passesShown   = 48
	passesChecked = 1 << 20
)

// pipeline says what lies on each stage, in which order stages run it, and what they send each other.
func (p *Plan) pipeline(s *config.Scenario) error {
	l, err := s.Model.PipelineLayout()
	if err != nil || l.PP == 1 {
		return err
	}
	for r := range l.PP {
		p.line("stage %-4d %s", r, stageText(l, r))
	}
	sched := train.Pipeline{PP: l.PP, VPP: l.VPP, Microbatches: s.NumMicrobatches(), Group: s.Model.MicrobatchGroup}
	p.line("schedule   F forward, B backward, microbatch.chunk; %d passes on each stage", 2*l.VPP*sched.Microbatches)
	for r := range l.PP {
		p.line("schedule   %s", cutPasses(train.ScheduleText(r, sched.Schedule(r))))
	}
	if 2*len(l.Chunks)*sched.Microbatches > passesChecked {
		p.line("schedule   too long to check here: above %d passes", passesChecked)
		return nil
	}
	plan, err := train.CheckPlan(sched, l, sched.Schedules())
	if err != nil {
		return err
	}
	p.line("bubble     %.4g %% of the work of a stage, where a backward pass takes two forward passes", 100*plan.Bubble())
	p.hops(s, l, plan)
	return nil
}

// stageText is a stage's chunks: "Ett (embedding, layers 0–1) | m (depth 1)".
func stageText(l mesh.Layout, rank int) string {
	parts := make([]string, l.VPP)
	for v := range parts {
		c := l.Chunks[l.Chunk(rank, v)]
		parts[v] = "nothing, rows pass through"
		if !c.Empty() {
			parts[v] = fmt.Sprintf("%s (%s)", c, chunkText(c))
		}
	}
	return strings.Join(parts, " | ")
}

func chunkText(c mesh.Chunk) string {
	var parts []string
	if c.Embedding {
		parts = append(parts, "embedding")
	}
	if n := len(c.Layers); n > 0 {
		parts = append(parts, span("layer", c.Layers[0], c.Layers[n-1]))
	}
	if n := len(c.Depths); n > 0 {
		parts = append(parts, span("depth", c.Depths[0], c.Depths[n-1]))
	}
	if c.Loss {
		parts = append(parts, "losses")
	}
	return strings.Join(parts, ", ")
}

func span(what string, from, to int) string {
	if from == to {
		return fmt.Sprintf("%s %d", what, from)
	}
	return fmt.Sprintf("%ss %d–%d", what, from, to)
}

// cutPasses keeps a schedule to one line that people read.
func cutPasses(text string) string {
	words := strings.Fields(text)
	const head = 2 // rank N:
	if len(words) <= head+passesShown {
		return text
	}
	return strings.Join(words[:head+passesShown], " ") + " …"
}

// hops says for each pair of chunks how much goes from one to the other for a microbatch, and how many microbatches may
// wait there at most.
func (p *Plan) hops(s *config.Scenario, l mesh.Layout, plan *train.Plan) {
	n := len(l.Chunks) - 1
	for j, e := range plan.Edges[:n] {
		back := plan.Edges[n+j]
		forward, backward := hopBytes(s, l, j)
		p.line("messages   chunk %d → %d (stage %d → %d): %s a microbatch and rank, at most %d waiting; back %s, at most %d waiting", j, j+1, l.Rank(j), l.Rank(j+1),
			bytesText(float64(forward)), e.Mailbox, bytesText(float64(backward)), back.Mailbox)
	}
}

// hopBytes is what a rank of chunk j sends to chunk j+1 for a microbatch, and gets back: hidden rows and their gradient;
// behind the final norm those of h_0 and of every depth so far, with each depth's labels and loss mask, and for further
// depths also ids, positions, the padding mask and given embeddings.
func hopBytes(s *config.Scenario, l mesh.Layout, j int) (forward, backward int) {
	slots, rows := localRows(s)
	hidden := 1
	if j >= l.LastLayered() {
		hidden = l.Hidden(j)
	}
	backward = hidden * rows * s.Model.HiddenSize * elementSize(s)
	forward = backward + (hidden-1)*8*slots
	if hidden > 1 && hidden <= s.Model.MTPNumLayers {
		forward += 8 * slots
		if s.Dataset.PaddingMask == "present" {
			forward += rows
		}
		if s.Dataset.Embeddings != "" {
			forward += slots * s.Model.HiddenSize * elementSize(s)
		}
	}
	return forward, backward
}

// localRows is the slots of a microbatch on a context-parallel rank, and the rows of an activation between layers: under
// sequence parallelism their share. Documents in a row do not change them but for rounding.
func localRows(s *config.Scenario) (slots, rows int) {
	m, align := &s.Model, 1
	if m.SequenceParallel && m.TensorParallel > 1 {
		align = m.TensorParallel
	}
	f := nn.NewFrames(nil, s.Train.MicroBatchSize, s.Dataset.SeqLength, m.ContextParallel, align)[0]
	return f.B * f.L, f.B * f.L / align
}
