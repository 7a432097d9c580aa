package explain

import "fmt"

// Report is everything about one microbatch. Its JSON names are stable.
type Report struct {
	Name         string   `json:"name"`
	About        string   `json:"about,omitempty"`
	Data         string   `json:"data"`         // the dataset in one line
	Step         int      `json:"step"`         // from 1
	Steps        int      `json:"steps"`        // of the run
	Microbatch   int      `json:"microbatch"`   // from 0, of the whole step
	Microbatches int      `json:"microbatches"` // of the whole step
	DPRank       int      `json:"dp_rank"`      // that computes it
	Layout       Layout   `json:"layout"`
	Batch        Batch    `json:"batch"`
	Masks        Masks    `json:"masks"`
	Mode         Mode     `json:"mode"`
	Mutate       []string `json:"mutate,omitempty"` // planted bugs
	Terms        []Term   `json:"terms"`            // LM head, then depths
	Rows         []Row    `json:"rows"`             // whole rows, by position
	Ranks        []Rank   `json:"ranks"`            // the same by context-parallel rank and slot
	Notes        []string `json:"notes"`            // what may surprise
}

// Layout is the sizes of the axes. SP is sequence parallelism over more than one tensor-parallel rank.
type Layout struct {
	TP int  `json:"tp"`
	CP int  `json:"cp"`
	DP int  `json:"dp"`
	PP int  `json:"pp"`
	SP bool `json:"sp"`
}

// Batch is the shape of the microbatch.
type Batch struct {
	Rows         int `json:"rows"`
	Positions    int `json:"positions"`      // of a row
	SlotsPerRank int `json:"slots_per_rank"` // of a row on one context-parallel rank
}

// Masks says which masks batches carry.
type Masks struct {
	Loss    string `json:"loss"`             // present | ones: every label counts
	Depths  string `json:"depths,omitempty"` // whether the depths get the loss mask: passed | withheld; "": no depths
	Padding string `json:"padding"`          // present | absent
}

// Mode is how losses are normalised.
type Mode struct {
	PerToken      bool    `json:"calculate_per_token_loss"`
	Normalization string  `json:"loss_normalization"`
	MTPFactor     float64 `json:"mtp_loss_scaling_factor,omitempty"`
}

// Term is one loss and its denominators. The gradient weight of a counted token is Factor / max(Divisor, 1) / Means.
type Term struct {
	Name               string  `json:"term"` // lm, mtp_1 …
	Depth              int     `json:"depth"`
	Tokens             int64   `json:"tokens"`               // counted in this microbatch
	DataTokens         int64   `json:"data_tokens"`          // that the data's own loss mask counts
	StepTokens         int64   `json:"tokens_in_step"`       // over all microbatches and data-parallel ranks
	TokensByDPRank     []int64 `json:"tokens_by_dp_rank"`    // the same by rank
	TokensByMicrobatch []int64 `json:"tokens_by_microbatch"` // the same by microbatch
	Factor             float64 `json:"factor"`               // 1; mtp_loss_scaling_factor / depths
	DivisorOf          string  `json:"divisor_of"`           // microbatch | step | rank
	Means              int     `json:"means"`                // means that the step averages
	Shares             []Share `json:"by_cp_rank"`           // what a rank counts and divides by
	Router             bool    `json:"router"`               // whether a layer below this loss has a router
	RouterValid        int64   `json:"router_valid_tokens"`  // positions that a router there counts
	RouterSlots        int64   `json:"router_slots"`         // positions it sees: all slots of all ranks
	RouterLeaks        int64   `json:"router_leaks"`         // counted ones that are padding or filled in
	RouterSkips        int64   `json:"router_skips"`         // real tokens that it does not count
}

// Share is one context-parallel rank's part of a term.
type Share struct {
	CPRank      int     `json:"cp_rank"`
	Tokens      int64   `json:"tokens"`
	Divisor     int64   `json:"divisor"`
	TokenWeight float64 `json:"token_weight"` // of one counted token in the gradient
}

// Document is a document of a row: Tokens of data in a place of Place positions.
type Document struct {
	Start  int `json:"start"`
	Tokens int `json:"tokens"`
	Place  int `json:"place"`
}

// Row is one whole row. All lists are by position.
type Row struct {
	Row       int        `json:"row"`
	Documents []Document `json:"documents"`
	Document  []int      `json:"document"` // index in Documents
	Offset    []int      `json:"offset"`   // in the document: the angle of RoPE, never rolled
	CPRank    []int      `json:"cp_rank"`  // that holds the position; −1: none, a planted bug
	TPRank    []int      `json:"tp_rank"`  // of the SP shard; null: every tensor-parallel rank holds it
	Slot      []int      `json:"slot"`     // on that rank
	Terms     []Line     `json:"terms"`
}

// Line is what one term sees along a row. Positions or slots, as where it stands says.
type Line struct {
	Term        string   `json:"term"`
	InputIDs    []int32  `json:"input_ids"`
	InputText   []string `json:"input_text,omitempty"` // with a tokenizer
	Labels      []int32  `json:"labels"`
	LabelText   []string `json:"label_text,omitempty"`
	LossMask    []int    `json:"loss_mask"`
	PaddingMask []int    `json:"padding_mask"` // null: absent
	PositionIDs []int32  `json:"position_ids"`
	State       []State  `json:"state"`
	// With a router: where it counts padding or what a roll filled in, and where it skips a real token.
	RouterLeaks []int `json:"router_leaks,omitempty"`
	RouterSkips []int `json:"router_skips,omitempty"`
}

// Rank is one context-parallel rank.
type Rank struct {
	CPRank   int       `json:"cp_rank"`
	Inserted int       `json:"inserted_slots"` // over all rows
	Rows     []RankRow `json:"rows"`
}

// RankRow is one row on one context-parallel rank. All lists are by slot.
type RankRow struct {
	Row       int    `json:"row"`
	Positions []int  `json:"positions"` // in the whole row; −1: inserted
	Document  []int  `json:"document"`  // −1: behind the last document
	Chunk     []int  `json:"chunk"`     // of the document's 2·CP; −1: none
	Offset    []int  `json:"offset"`    // in the document
	TPRank    []int  `json:"tp_rank"`   // null: every tensor-parallel rank holds it
	Inserted  int    `json:"inserted_slots"`
	Terms     []Line `json:"terms"`
}

// State is what a position is to a term.
type State uint8

// The states. The first that holds, in this order.
const (
	Inserted State = iota // a slot that context parallelism inserted: holds nothing
	Leaked                // counted although the data's loss mask says no, or on padding
	Wrong                 // another token, label, position or count than the rules give: a planted bug
	Counted               // in the loss
	Filled                // the roll left the document: id, label and position 0, not counted
	Padding               // padding of the data
	Ignored               // a real token whose label does not count
)

var stateNames = [...]string{"inserted", "leaked", "wrong", "counted", "filled", "padding", "ignored"}

// String is the name of the state.
func (s State) String() string { return stateNames[s] }

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("explain: found state %q, expected one of %v", text, stateNames)
}

// termName is lm, mtp_1 …
func termName(depth int) string {
	if depth == 0 {
		return "lm"
	}
	return fmt.Sprintf("mtp_%d", depth)
}
