package trial

import "phalanx/nn"

// What follows is arithmetic on lengths, written without any of package nn's code: tests compare
// package nn with it.

// Place is where a position of a row stands.
type Place struct {
	Doc     int // index in the row; a tail behind the last document is one more
	Start   int // first position of the document
	Off     int // position in the document
	Logical int // positions of data that the document has
}

// Places are the places of all positions, [b, s].
func Places(docs nn.Docs, b, s int) []Place {
	out := make([]Place, 0, b*s)
	for row := range b {
		at := 0
		for i, d := range rowDocs(docs, row, s) {
			for off := range d.Physical {
				out = append(out, Place{Doc: i, Start: at, Off: off, Logical: d.Logical})
			}
			at += d.Physical
		}
	}
	return out
}

// rowDocs are the documents of a row, with its tail.
func rowDocs(docs nn.Docs, row, s int) []nn.Doc {
	var list []nn.Doc
	if docs != nil {
		list = append(list, docs[row]...)
	}
	at := 0
	for _, d := range list {
		at += d.Physical
	}
	if at < s || len(list) == 0 {
		list = append(list, nn.Doc{Start: at, Logical: s - at, Physical: s - at})
	}
	return list
}

// Slots says which position every slot of every context-parallel rank holds: [cp][b·L], −1 where it holds none. Every
// document is cut in 2·cp chunks; rank r has chunk r, then chunk 2·cp−1−r, of one document after another. L is the same
// everywhere, even and a multiple of align.
func Slots(docs nn.Docs, b, s, cp, align int) (src [][]int, l int) {
	chunk := func(d nn.Doc) int { return (d.Physical + 2*cp - 1) / (2 * cp) }
	for row := range b {
		n := 0
		for _, d := range rowDocs(docs, row, s) {
			n += 2 * chunk(d)
		}
		l = max(l, n)
	}
	if cp == 1 {
		l = s
	}
	for l%align != 0 || cp > 1 && l%2 != 0 {
		l++
	}
	src = make([][]int, cp)
	for r := range cp {
		for row := range b {
			var slots []int
			for _, d := range rowDocs(docs, row, s) {
				m := chunk(d)
				offs := [][2]int{{r * m, (r + 1) * m}, {(2*cp - 1 - r) * m, (2*cp - r) * m}}
				if cp == 1 {
					offs = [][2]int{{0, d.Physical}}
				}
				for _, o := range offs {
					for off := o[0]; off < o[1]; off++ {
						if off < d.Physical {
							slots = append(slots, d.Start+off)
						} else {
							slots = append(slots, -1)
						}
					}
				}
			}
			for len(slots) < l {
				slots = append(slots, -1)
			}
			src[r] = append(src[r], slots...)
		}
	}
	return src, l
}

// Links is the number of edges of a rank's chunks that a roll sends each way over a link: one of every document with a
// place, of all rows.
func Links(docs nn.Docs, b, s int) int {
	n := 0
	for row := range b {
		for _, d := range rowDocs(docs, row, s) {
			if d.Physical > 0 {
				n++
			}
		}
	}
	return n
}

// Local is what a rank holds of a whole [b, s] tensor with n elements a position; fill where a slot holds nothing.
func Local[V any](src []int, b, s, n int, whole []V, fill V) []V {
	l := len(src) / b
	out := make([]V, 0, len(src)*n)
	for i, p := range src {
		for e := range n {
			if p < 0 {
				out = append(out, fill)
			} else {
				out = append(out, whole[(i/l*s+p)*n+e])
			}
		}
	}
	return out
}

// Rolled is a whole [b, s] tensor after n rolls: the value n positions further on, fill where that is at or beyond the
// document's logical end.
func Rolled[V any](docs nn.Docs, b, s, width, n int, x []V, fill V) []V {
	out := make([]V, 0, len(x))
	for i, p := range Places(docs, b, s) {
		for e := range width {
			if p.Off+n < p.Logical {
				out = append(out, x[(i+n)*width+e])
			} else {
				out = append(out, fill)
			}
		}
	}
	return out
}
