package explain

import "fmt"

// reading is one short explanation.
type reading struct{ Head, Text string }

// readings explain the grids of a report: what rolls, why the last positions drop out, who holds what.
func readings(r *Report) []reading {
	depths := len(r.Terms) - 1
	out := []reading{{"A cell", "is one position of one loss. Above: the token that is read, x. Below: the label to predict, y[i] = x[i+1]. " +
		"The column stays where it is: it is the place of a hidden state, on one rank."}}
	if depths > 0 {
		out = append(out, reading{"What rolls", "From each depth to the next, token ids, position ids, labels, loss mask and validity (the opposite of the padding mask) " +
			"move one place to the left inside their document. Hidden states, attention mask and RoPE angles stay: depth k joins the hidden state of " +
			"position i with the token x[i+k] and predicts y[i+k]."},
			reading{"Why the end drops out", "At depth k the last k positions of a document have nothing to read. The roll fills in 0: loss mask 0, so they are " +
				"not counted; validity 0, so routers see padding. A document of n tokens counts at most n − k labels: every depth has a denominator of its own."})
	}
	if r.Layout.CP > 1 {
		out = append(out, reading{"Context parallelism", fmt.Sprintf("Every document is cut in 2·CP = %d chunks; rank r holds chunk r and chunk %d − r (zigzag, so that "+
			"causal attention costs all ranks the same). What leaves a chunk comes from the neighbour's next one by message. Slots inserted to make chunks equal hold nothing.",
			2*r.Layout.CP, 2*r.Layout.CP-1)})
	}
	if r.Layout.SP {
		out = append(out, reading{"Sequence parallelism", fmt.Sprintf("The %d slots of a row on a context-parallel rank are cut in %d shards, one per tensor-parallel rank. "+
			"The end of a shard is not the end of the sequence, so the padding mask is gathered, rolled and cut again.", r.Batch.SlotsPerRank, r.Layout.TP)})
	}
	return out
}

// rollPicture is the small drawing of a roll: tokens of one document, a line per term.
type rollPicture struct {
	Width, Height int
	Boxes         []box
	Arrows        []arrow
	Names         []name
}

type box struct {
	X, Y, W, H int
	In, Out    string
	Class      string
	TX, T1, T2 int // middle, and base lines of the two texts
}

type arrow struct{ D string }

type name struct {
	X, Y int
	Text string
}

// Sizes of the drawing.
const (
	rollTokens = 5
	rollDepths = 2
	boxW, boxH = 46, 36
	boxGapX    = 8
	boxGapY    = 20
	rollLeft   = 64
)

// rollsOf draws the LM head and the first depths over one document.
func rollsOf(depths int) rollPicture {
	p := rollPicture{Width: rollLeft + rollTokens*(boxW+boxGapX), Height: (min(depths, rollDepths)+1)*(boxH+boxGapY) - boxGapY + 2}
	for k := range min(depths, rollDepths) + 1 {
		y := 1 + k*(boxH+boxGapY)
		label := "LM"
		if k > 0 {
			label = fmt.Sprintf("depth %d", k)
		}
		p.Names = append(p.Names, name{0, y + boxH/2 + 4, label})
		for i := range rollTokens {
			x := rollLeft + i*(boxW+boxGapX)
			b := box{X: x, Y: y, W: boxW, H: boxH, In: fmt.Sprintf("x%d", i+k), Out: fmt.Sprintf("y%d", i+k), Class: "f-counted",
				TX: x + boxW/2, T1: y + 15, T2: y + 29}
			if i+k >= rollTokens {
				b.In, b.Out, b.Class = "0", "0", "f-filled"
			}
			p.Boxes = append(p.Boxes, b)
			if k > 0 && i+k < rollTokens {
				p.Arrows = append(p.Arrows, arrow{fmt.Sprintf("M%d %dL%d %d", x+boxW+boxGapX+boxW/2-4, y-boxGapY+2, x+boxW/2+8, y-3)})
			}
		}
	}
	return p
}
