// Package run is the composition root: it turns a scenario into ranks, links, actors and listeners, waits for the
// end, and checks what the scenario expects.
package run

import (
	"encoding/json"
	"strconv"

	"phalanx/supervise"
	"phalanx/transport/natslink/plane"
)

// Report is the outcome of one scenario. Its JSON is a contract.
type Report struct {
	Name              string           `json:"name"`
	Verdict           string           `json:"verdict"` // pass | fail
	Steps             []StepFigures    `json:"steps"`
	Expect            []ExpectResult   `json:"expect"`
	Messages          map[string]Count `json:"messages"`
	LogBytesPeak      []LogPeak        `json:"log_bytes_peak,omitempty"` // with recovery: of every rank, ascending
	Restarts          int              `json:"restarts"`
	Replayed          int              `json:"replayed"`
	DuplicatesDropped int              `json:"duplicates_dropped"`
	RecoveryMs        []float64        `json:"recovery_ms"`
	Recoveries        []Recovery       `json:"recoveries,omitempty"`   // of a run of several processes, in the order in which they were over
	FalseAlarms       int              `json:"false_alarms,omitempty"` // processes that were given up and lived
	Links             *plane.Links     `json:"links,omitempty"`        // what links of a run of several processes have healed
	Pace              []supervise.Row  `json:"pace,omitempty"`         // computing of the ranks of a run of several processes, the slowest first
	WeightsSHA256     string           `json:"weights_sha256"`
	Transport         string           `json:"transport"`
	TokensPerS        float64          `json:"tokens_per_s"`
	PeakRSSBytes      int64            `json:"peak_rss_bytes"`
	Validation        []EvalFigures    `json:"validation,omitempty"`
	Checkpoint        string           `json:"checkpoint,omitempty"`    // folder of the last one written
	Bundle            string           `json:"bundle,omitempty"`        // folder of what a poisonous rank had received, to be replayed
	FaultsUnused      []UnusedFault    `json:"faults_unused,omitempty"` // faults of the scenario that have not happened
	Recording         *RecordingCost   `json:"recording,omitempty"`
	Error             string           `json:"error,omitempty"`
	Reports           []string         `json:"-"` // text blocks the scenario asked for (token losses, masks)
}

// StepFigures are the figures of one optimizer step, 1-based as the console prints them.
type StepFigures struct {
	Step      int
	LMLoss    float64
	MTPLoss   []float64 // per depth
	Balancing []Figure  // load_balancing_loss, seq_…, global_…: those configured
	ZLoss     *float64
	PerLayer  []Figure // moe/load_balancing_loss_layer_0, …, with moe_per_layer_logging
	GradNorm  float64
	LR        float64
	Tokens    int64
	Samples   int64 // consumed so far
	Batch     int   // global batch size
	Finite    bool
	Skipped   bool  // the gradient was not finite, and no weight has changed
	LMTokens  int64 // labels that counted; 0: "no tokens"
}

// Figure is a named number of a step.
type Figure struct {
	Name  string
	Value float64
}

// MarshalJSON writes Megatron's names.
func (s StepFigures) MarshalJSON() ([]byte, error) {
	out := []field{{"step", s.Step}, {"lm loss", number(s.LMLoss)}}
	for k, v := range s.MTPLoss {
		out = append(out, field{"mtp_" + strconv.Itoa(k+1) + " loss", number(v)})
	}
	for _, b := range s.Balancing {
		out = append(out, field{b.Name, number(b.Value)})
	}
	if s.ZLoss != nil {
		out = append(out, field{"z_loss", number(*s.ZLoss)})
	}
	for _, l := range s.PerLayer {
		out = append(out, field{l.Name, number(l.Value)})
	}
	out = append(out, field{"grad norm", number(s.GradNorm)}, field{"learning rate", number(s.LR)}, field{"tokens", s.Tokens})
	if s.Skipped {
		out = append(out, field{"skipped", true})
	}
	return marshalOrdered(out)
}

// EvalFigures is one validation pass.
type EvalFigures struct {
	Step   int     `json:"step"`
	LMLoss float64 `json:"lm loss"`
	Tokens int64   `json:"tokens"`
}

// ExpectResult is one expectation and what was found.
type ExpectResult struct {
	Text string `json:"text"`
	OK   bool   `json:"ok"`
	Got  string `json:"got"`
}

// Count is operations per group and payload bytes of one kind of message.
type Count struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

type field struct {
	key   string
	value any
}

// number is v, or its name where JSON has none (NaN, Inf).
func number(v float64) any {
	if v-v != 0 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return v
}

// marshalOrdered writes an object with its keys in the given order.
func marshalOrdered(fields []field) ([]byte, error) {
	out := []byte{'{'}
	for i, f := range fields {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}
