package explain

import (
	"fmt"
	"slices"
	"strings"

	"phalanx/config/mutation"
)

// notes are what may surprise about a microbatch, the gravest first.
func (x *subject) notes(r *Report, counted [][]int64) []string {
	notes := []string{}
	for _, of := range []func(*Report, [][]int64) []string{x.plantedNotes, x.lossMaskNotes, x.paddingNotes, emptyTermNotes,
		x.emptyRankNotes, x.documentNotes, x.weightNotes, insertedNotes, x.otherNotes} {
		notes = append(notes, of(r, counted)...)
	}
	return notes
}

// unseen are planted bugs of model: in how it makes a batch of the source's, or in denominators.
const unseen = mutation.MaskOffByOne | mutation.MaskByPadID | mutation.MaskWrongReplica | mutation.LMCountForMTP |
	mutation.LocalRatio | mutation.LocalMean | mutation.UnclampedZeroTokens | mutation.SkippedTokensCounted

// plantedNotes are about bugs that the scenario plants.
func (x *subject) plantedNotes(r *Report, counted [][]int64) []string {
	if x.mut == 0 {
		return nil
	}
	notes := []string{"planted: " + strings.Join(x.s.Mutate, ", ") + "; tokens, masks and owners are shown as the ranks see them"}
	if x.mut.Has(unseen) {
		notes = append(notes, "a planted bug is in denominators, or in the masks before they are cut: it is not shown here, `phalanx run` has it")
	}
	for i, t := range r.Terms {
		sum := int64(0)
		for _, s := range t.Shares {
			sum += s.Tokens
		}
		if want := counted[x.o.Microbatch][i]; sum != want {
			notes = append(notes, fmt.Sprintf("%s: the ranks count %s, the denominator has %d", t.Name, tokens(sum), want))
		}
	}
	return notes
}

// lossMaskNotes are about loss masks that are absent, withheld, or at odds with the padding.
func (x *subject) lossMaskNotes(r *Report, _ [][]int64) []string {
	var notes []string
	if r.Masks.Loss == "ones" {
		notes = append(notes, "batches carry no loss mask: every label counts, of prompts and padding too")
	}
	if n := r.states(0, Leaked); n > 0 && r.Masks.Loss == "present" {
		notes = append(notes, fmt.Sprintf("the loss mask counts %s whose input is padding", tokens(n)))
	}
	var more []string
	for _, t := range r.Terms[1:] {
		if r.Masks.Depths == "withheld" && t.Tokens > t.DataTokens {
			more = append(more, fmt.Sprintf("%s counts %d, the data's mask %d", t.Name, t.Tokens, t.DataTokens))
		}
	}
	if len(more) > 0 {
		notes = append(notes, "mtp_loss_mask is withheld, so depths count padding, prompts and labels that nobody knows: "+strings.Join(more, "; "))
	}
	return notes
}

// states counts the positions of a term in a state, over all rows.
func (r *Report) states(term int, s State) int64 {
	n := int64(0)
	for _, row := range r.Rows {
		n += count(row.Terms[term].State, s)
	}
	return n
}

// paddingNotes are about what routers count.
func (x *subject) paddingNotes(r *Report, _ [][]int64) []string {
	var leaky, lossy []string
	for _, t := range r.Terms {
		if t.Router && t.RouterLeaks > 0 {
			leaky = append(leaky, fmt.Sprintf("%s %d of %d", t.Name, t.RouterLeaks, t.RouterValid))
		}
		if t.Router && t.RouterSkips > 0 {
			lossy = append(lossy, fmt.Sprintf("%s %d", t.Name, t.RouterSkips))
		}
	}
	var notes []string
	if text := x.absentMask(r); text != "" || len(leaky) > 0 {
		if len(leaky) > 0 {
			text += "routers count positions that are padding or that a roll filled in: " + strings.Join(leaky, ", ")
		}
		notes = append(notes, strings.TrimSuffix(text, "; "))
	}
	if len(lossy) > 0 {
		notes = append(notes, "routers leave out real tokens: "+strings.Join(lossy, ", "))
	}
	return notes
}

// absentMask says that batches carry no padding mask, if they need one.
func (x *subject) absentMask(r *Report) string {
	if r.Masks.Padding == "present" {
		return ""
	}
	rows, n := x.paddedRows()
	switch {
	case len(rows) > 0:
		return fmt.Sprintf("batches carry no padding mask, but %s padded (%d positions in all); ", rowsAre(rows), n)
	case r.Terms[len(r.Terms)-1].RouterLeaks > 0 && r.Terms[len(r.Terms)-1].Router:
		return "batches carry no padding mask; "
	}
	return ""
}

// paddedRows are rows with padding, as far as is known, and its positions.
func (x *subject) paddedRows() (rows []int, positions int) {
	for i, valid := range x.realTokens().Valid {
		if valid {
			continue
		}
		positions++
		if row := i / x.mb.S; !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	return rows, positions
}

// emptyTermNotes are about terms without a counted token.
func emptyTermNotes(r *Report, _ [][]int64) []string {
	var notes []string
	for _, t := range r.Terms {
		switch {
		case t.StepTokens == 0:
			notes = append(notes, fmt.Sprintf("%s counts no token in the whole step: its loss and its gradient are 0, its divisor is clamped to 1", t.Name))
		case t.Tokens == 0:
			notes = append(notes, fmt.Sprintf("%s counts no token in this microbatch, %d in the step: here its loss is 0%s", t.Name, t.StepTokens,
				clampText(t)))
		}
	}
	return notes
}

func clampText(t Term) string {
	if t.DivisorOf == "step" {
		return ""
	}
	return ", its divisor is clamped to 1, and its mean of 0 is one of those that the step averages"
}

// emptyRankNotes are about ranks without a counted token.
func (x *subject) emptyRankNotes(r *Report, _ [][]int64) []string {
	var notes []string
	for _, t := range r.Terms {
		var empty []int
		for _, s := range t.Shares {
			if s.Tokens == 0 {
				empty = append(empty, s.CPRank)
			}
		}
		if t.Tokens > 0 && len(empty) > 0 {
			notes = append(notes, fmt.Sprintf("%s counts no token on cp %s in this microbatch: %s", t.Name, joined(empty), emptyRankText(t)))
		}
		empty = nil
		for dp, n := range t.TokensByDPRank {
			if n == 0 {
				empty = append(empty, dp)
			}
		}
		if t.StepTokens > 0 && len(empty) > 0 {
			notes = append(notes, fmt.Sprintf("%s counts no token on dp %s in this step", t.Name, joined(empty)))
		}
	}
	return notes
}

func emptyRankText(t Term) string {
	if t.DivisorOf == "rank" {
		return "its mean there is 0, and pulls the average of the ranks down (loss_normalization: exact does not)"
	}
	return "it adds 0 there; a mean per rank would be 0/0, but no divisor is a rank's own count"
}

// documentNotes are about documents that context parallelism cuts thin, and rows of padding.
func (x *subject) documentNotes(r *Report, _ [][]int64) []string {
	var short, notes []string
	for _, row := range r.Rows {
		for i, d := range row.Documents {
			if r.Layout.CP > 1 && d.Place < 2*r.Layout.CP {
				short = append(short, fmt.Sprintf("row %d document %d (%d)", row.Row, i, d.Place))
			}
		}
	}
	if len(short) > 0 {
		notes = append(notes, fmt.Sprintf("shorter than 2·CP = %d positions, so that some of their chunks hold nothing: %s", 2*r.Layout.CP, few(short)))
	}
	real := x.realTokens().Valid
	var empty []int
	for b := range x.mb.B {
		if !slices.Contains(real[b*x.mb.S:(b+1)*x.mb.S], true) {
			empty = append(empty, b)
		}
	}
	if len(empty) > 0 {
		notes = append(notes, rowsAre(empty)+" all padding")
	}
	return notes
}

// weightNotes are about tokens that weigh more than others of the same loss.
func (x *subject) weightNotes(r *Report, _ [][]int64) []string {
	var means, ranks, notes []string
	most := 1.0
	for _, t := range r.Terms {
		low, high := max(slices.Min(t.TokensByMicrobatch), 1), slices.Max(t.TokensByMicrobatch)
		if t.DivisorOf == "microbatch" && low < high {
			means = append(means, fmt.Sprintf("%s %d to %d", t.Name, slices.Min(t.TokensByMicrobatch), high))
			most = max(most, float64(high)/float64(low))
		}
		if t.DivisorOf == "rank" && unequal(t.Shares) {
			ranks = append(ranks, t.Name)
		}
	}
	if len(means) > 0 {
		notes = append(notes, fmt.Sprintf("microbatches count different numbers of tokens (%s) and each is a mean of its own: a token of the smallest weighs "+
			"up to %.3g times one of the largest; calculate_per_token_loss: true weighs all alike", strings.Join(means, ", "), most))
	}
	if len(ranks) > 0 {
		notes = append(notes, fmt.Sprintf("context-parallel ranks count different numbers of tokens of %s and each divides by its own: the layout changes the "+
			"gradient; loss_normalization: exact does not", strings.Join(ranks, ", ")))
	}
	return notes
}

func unequal(shares []Share) bool {
	return slices.ContainsFunc(shares, func(s Share) bool { return s.Tokens != shares[0].Tokens })
}

// insertedNotes are about slots that hold nothing.
func insertedNotes(r *Report, _ [][]int64) []string {
	var parts []string
	for _, rank := range r.Ranks {
		if rank.Inserted > 0 {
			parts = append(parts, fmt.Sprintf("cp %d %d", rank.CPRank, rank.Inserted))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("lengths are rounded up to multiples of 2·CP or of TP: inserted slots (over %d rows) %s; they hold nothing and count nowhere",
		r.Batch.Rows, strings.Join(parts, ", "))}
}

// otherNotes are what is no surprise but worth a word.
func (x *subject) otherNotes(r *Report, _ [][]int64) []string {
	var notes []string
	if x.mb.Embeddings != nil {
		notes = append(notes, "inputs are precomputed embeddings, rolled like ids: the input tokens shown are not looked up")
	}
	if x.depths == 0 {
		notes = append(notes, "no MTP depth: model.mtp_num_layers is 0")
	}
	return append(notes, x.s.Notes...)
}

// fewMax is how many of a list a note names.
const fewMax = 6

// few is the first of a list, and how many more there are.
func few(list []string) string {
	if len(list) <= fewMax {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:fewMax], ", "), len(list)-fewMax)
}

// joined is "0, 2, 5".
func joined(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = fmt.Sprint(n)
	}
	return few(words)
}

func rowsAre(rows []int) string {
	if len(rows) == 1 {
		return fmt.Sprintf("row %d is", rows[0])
	}
	return "rows " + joined(rows) + " are"
}

func tokens(n int64) string {
	if n == 1 {
		return "1 token"
	}
	return fmt.Sprintf("%d tokens", n)
}
