package explain

import (
	"fmt"
	"strconv"
	"strings"
)

// Shapes of the text.
const (
	widthMax = 120 // columns
	tableMax = 64  // positions of a row that is printed position by position; longer ones are summarised in runs
	runsMax  = 16  // runs of a summary that are named
	labelMax = 16  // columns of the labels in front of a table

	summaryMax = labelMax + 2 // the same in front of runs
)

// Text is the report for a terminal.
func Text(r *Report) string {
	p := &printer{}
	p.header(r)
	p.denominators(r)
	if len(r.Notes) > 0 {
		p.line("")
	}
	for _, n := range r.Notes {
		p.wrap("note       ", strings.Fields(n))
	}
	for i := range r.Rows {
		p.row(r, &r.Rows[i])
	}
	if r.Layout.CP > 1 || r.Batch.SlotsPerRank != r.Batch.Positions {
		p.ranks(r)
	}
	return p.b.String()
}

// printer collects lines.
type printer struct{ b strings.Builder }

func (p *printer) line(format string, args ...any) {
	p.b.WriteString(strings.TrimRight(fmt.Sprintf(format, args...), " "))
	p.b.WriteByte('\n')
}

// wrap prints words behind a label, further lines below the first word.
func (p *printer) wrap(label string, words []string) {
	line, start := label, true
	for _, w := range words {
		if !start && width(line)+1+width(w) > widthMax {
			p.line("%s", line)
			line, start = strings.Repeat(" ", width(label)), true
		}
		if !start {
			line += " "
		}
		line, start = line+w, false
	}
	p.line("%s", line)
}

// width is columns of a terminal, one per character.
func width(s string) int { return len([]rune(s)) }

// pad right-aligns s.
func pad(s string, columns int) string { return strings.Repeat(" ", max(0, columns-width(s))) + s }

// padRight left-aligns s.
func padRight(s string, columns int) string { return s + strings.Repeat(" ", max(0, columns-width(s))) }

func (p *printer) header(r *Report) {
	p.line("explain    %s: step %d of %d, microbatch %s", r.Name, r.Step, r.Steps, microbatchText(r))
	p.wrap("data       ", strings.Fields(r.Data))
	p.wrap("layout     ", strings.Fields(layoutText(r)))
	p.wrap("masks      ", strings.Fields(masksText(r)))
	if len(r.Mutate) > 0 {
		p.wrap("planted    ", strings.Fields(strings.Join(r.Mutate, ", ")))
	}
}

func microbatchText(r *Report) string {
	text := spanText(0, r.Microbatches)
	if r.Microbatches > 1 {
		text = fmt.Sprintf("%d of %s", r.Microbatch, text)
	}
	if r.Layout.DP > 1 {
		text += fmt.Sprintf(", of dp rank %d", r.DPRank)
	}
	return text
}

func layoutText(r *Report) string {
	l, b := r.Layout, r.Batch
	text := fmt.Sprintf("tp %d", l.TP)
	if l.SP {
		text += " with sequence parallelism"
	}
	text += fmt.Sprintf(" × cp %d × dp %d", l.CP, l.DP)
	if l.PP > 1 {
		text += fmt.Sprintf(" × pp %d", l.PP)
	}
	text += fmt.Sprintf("; %s of %d positions", plural(b.Rows, "row"), b.Positions)
	if l.CP > 1 || b.SlotsPerRank != b.Positions {
		text += fmt.Sprintf(", %d slots a row on each cp rank", b.SlotsPerRank)
	}
	if l.SP {
		text += fmt.Sprintf(", %d on each tp rank", b.SlotsPerRank/l.TP)
	}
	return text
}

func masksText(r *Report) string {
	loss := map[string]string{"present": "loss mask present", "ones": "no loss mask: every label counts"}[r.Masks.Loss]
	if r.Masks.Depths != "" {
		loss += ", " + r.Masks.Depths + map[string]string{"passed": " to", "withheld": " from"}[r.Masks.Depths] + " the depths"
	}
	return loss + "; padding mask " + r.Masks.Padding
}

// ruleText says how losses are normalised.
func ruleText(r *Report) string {
	lm := r.Terms[0]
	switch {
	case r.Mode.PerToken && r.Mode.Normalization == "upstream":
		return "With calculate_per_token_loss, upstream: LM Σ/Σ over the step; a depth's sum × the rank's own LM count / its own count, over the step's LM count"
	case r.Mode.PerToken:
		return "With calculate_per_token_loss each term is Σ/Σ over the step, divided by its own count"
	case lm.DivisorOf == "rank":
		return fmt.Sprintf("Upstream: each cp rank divides by its own count; the mean of %s (%s × cp %d)", plural(lm.Means, "mean"),
			plural(r.Microbatches, "microbatch"), r.Layout.CP)
	}
	if r.Microbatches == 1 {
		return "Each term is the mean over its own count in the step's one microbatch"
	}
	return fmt.Sprintf("Each term is the mean, over the step's %d microbatches, of the microbatch's mean over its own count", r.Microbatches)
}

// denominators is a table of the terms.
func (p *printer) denominators(r *Report) {
	p.line("")
	p.wrap("losses     ", strings.Fields(ruleText(r)))
	rows := [][]string{{"term", "counted here", "in the step", "divided by", "factor", "a token weighs", "router counts"}}
	for _, t := range r.Terms {
		rows = append(rows, []string{t.Name, strconv.FormatInt(t.Tokens, 10), strconv.FormatInt(t.StepTokens, 10), divisorText(t), factorText(r, t),
			weightText(t), routerText(t)})
	}
	p.table(rows)
	p.splits(r)
}

// table prints cells in columns, right-aligned but for the first.
func (p *printer) table(rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}
	for _, row := range rows {
		line := "           " + padRight(row[0], widths[0])
		for i, cell := range row[1:] {
			line += "  " + pad(cell, widths[i+1])
		}
		p.line("%s", line)
	}
}

// divisorText is "6 × 4 means".
func divisorText(t Term) string {
	var own []string
	for _, s := range t.Shares {
		own = append(own, strconv.FormatInt(s.Divisor, 10))
	}
	text := own[0]
	if t.DivisorOf == "rank" && len(own) > 1 {
		text = "own " + extremes(own, func(a, b int) bool { return t.Shares[a].Divisor < t.Shares[b].Divisor })
	}
	if t.Means > 1 {
		text += fmt.Sprintf(" × %d means", t.Means)
	}
	return text
}

func factorText(r *Report, t Term) string {
	if t.Depth == 0 {
		return "1"
	}
	return fmt.Sprintf("%g/%d", r.Mode.MTPFactor, len(r.Terms)-1)
}

func weightText(t Term) string {
	var own []string
	for _, s := range t.Shares {
		own = append(own, fmt.Sprintf("%.4g", s.TokenWeight))
	}
	return extremes(own, func(a, b int) bool { return t.Shares[a].TokenWeight < t.Shares[b].TokenWeight })
}

// extremes is the least and the greatest of texts, one if they are the same.
func extremes(texts []string, less func(a, b int) bool) string {
	low, high := 0, 0
	for i := range texts {
		if less(i, low) {
			low = i
		}
		if less(high, i) {
			high = i
		}
	}
	if texts[low] == texts[high] {
		return texts[low]
	}
	return texts[low] + "…" + texts[high]
}

func routerText(t Term) string {
	if !t.Router {
		return "no router"
	}
	return fmt.Sprintf("%d of %d", t.RouterValid, t.RouterSlots)
}

// splits says which ranks and microbatches the counts come from.
func (p *printer) splits(r *Report) {
	for _, by := range []struct {
		label string
		parts int
		of    func(t *Term) []int64
	}{
		{"by microbatch:", r.Microbatches, func(t *Term) []int64 { return t.TokensByMicrobatch }},
		{"by dp rank:", r.Layout.DP, func(t *Term) []int64 { return t.TokensByDPRank }},
		{"here by cp rank:", r.Layout.CP, (*Term).tokensByCPRank},
	} {
		if by.parts < 2 {
			continue
		}
		var words []string
		for i := range r.Terms {
			words = append(words, strings.Fields(r.Terms[i].Name+" "+listText(by.of(&r.Terms[i])))...)
			words[len(words)-1] += ","
		}
		p.wrap(fmt.Sprintf("           %-16s ", by.label), trimComma(words))
	}
}

func (t *Term) tokensByCPRank() []int64 {
	var out []int64
	for _, s := range t.Shares {
		out = append(out, s.Tokens)
	}
	return out
}

func listText(list []int64) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.FormatInt(n, 10)
	}
	if len(words) > 2*runsMax {
		words = append(words[:2*runsMax], fmt.Sprintf("… and %d more", len(list)-2*runsMax))
	}
	return strings.Join(words, " ")
}

// plural is "1 row" or "2 rows", "2 microbatches".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "h") {
		word += "e"
	}
	return fmt.Sprintf("%d %ss", n, word)
}
