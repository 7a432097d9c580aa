// Package telemetry holds the listeners of a run: the console that prints Megatron's lines, the progress line of a
// terminal, and the writer of JSON reports. Listeners get values and write text; they know no actor and no transport.
package telemetry

// Value is a named figure, as a line prints it: "lm loss", "mtp_1 loss", "load_balancing_loss".
type Value struct {
	Name  string
	Value float64
}

// Iteration is one finished optimizer step as the console sees it.
type Iteration struct {
	Step      int     // from 1
	Steps     int     // of the whole run
	Samples   int64   // consumed so far
	Batch     int     // global batch size
	ElapsedMs float64 // wall clock of this step
	LR        float64 // learning rate
	Losses    []Value // in the order of the line
	GradNorm  float64 // before clipping
	Tokens    int64   // positions of this step, padding included
	NoTokens  bool    // no label counted in the LM loss
	NaN       bool    // a figure of the step is not finite
	Skipped   bool    // the optimizer left the weights alone
}

// Validation is one pass over held-out data.
type Validation struct {
	Step   int     // after this iteration, from 1
	Losses []Value // "lm loss"
	Tokens int64   // labels that counted
}

// window gathers the iterations between two lines. Megatron prints the mean of the losses and of the elapsed time,
// and counts skipped and not-finite iterations; the rest is the last iteration's.
type window struct {
	last      Iteration
	sums      []Value
	elapsedMs float64
	count     int // all iterations
	advanced  int // those that were not skipped
	skipped   int
	nan       int
}

func (w *window) add(it Iteration) {
	w.last = it
	w.count++
	w.elapsedMs += it.ElapsedMs
	if it.NaN {
		w.nan++
	}
	if it.Skipped {
		w.skipped++
		return
	}
	w.advanced++
	for _, l := range it.Losses {
		w.addLoss(l)
	}
}

func (w *window) addLoss(l Value) {
	for i := range w.sums {
		if w.sums[i].Name == l.Name {
			w.sums[i].Value += l.Value
			return
		}
	}
	w.sums = append(w.sums, l)
}

// means are the losses of the line.
func (w *window) means() []Value {
	out := make([]Value, len(w.sums))
	for i, s := range w.sums {
		out[i] = Value{Name: s.Name, Value: s.Value / float64(max(w.advanced, 1))}
	}
	return out
}
