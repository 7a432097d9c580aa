package mesh

import "fmt"

// Limits of a layout text: far beyond any model, and small enough that nested repeats cannot fill memory.
const (
	layoutBytesMax = 4096
	layoutItemsMax = 1 << 14 // letters and bars after repeats are written out
)

// item is one letter or bar of a layout, repeats written out.
type item struct {
	kind byte // one of E t m L |
	at   int  // character of the text that it came from, from 1
}

// ParseLayout reads Megatron's layout text for pp ranks: E (embedding), t (decoder layer), m (MTP depth) and L (loss) in
// chunks that | ends; x*n and (…)*n repeat, also inside each other; commas and spaces mean nothing.
// Entry j of the list is virtual chunk j÷pp of rank j mod pp. Unlike Megatron, depths may lie one by one in several chunks
// in sequence. Errors are *LayoutError.
func ParseLayout(text string, pp int, stack Stack) (Layout, error) {
	if len(text) > layoutBytesMax {
		return Layout{}, &LayoutError{layoutBytesMax + 1, fmt.Sprintf("the text has %d bytes; expected at most %d, with repeats as t*3 or (tt|)*3", len(text), layoutBytesMax)}
	}
	p := &layoutParser{text: text}
	items, err := p.sequence(0)
	if err != nil {
		return Layout{}, err
	}
	return place(items, pp, stack, len(text)+1)
}

type layoutParser struct {
	text string
	next int // byte
}

// peek is the next byte that means something; 0 at the end.
func (p *layoutParser) peek() byte {
	for p.next < len(p.text) && (p.text[p.next] == ',' || p.text[p.next] == ' ') {
		p.next++
	}
	if p.next == len(p.text) {
		return 0
	}
	return p.text[p.next]
}

func (p *layoutParser) fail(at int, format string, args ...any) error {
	return &LayoutError{at, fmt.Sprintf(format, args...)}
}

// sequence reads items to the end of the text, or to the bracket that closes the one at character open.
func (p *layoutParser) sequence(open int) ([]item, error) {
	var items []item
	for {
		c := p.peek()
		at := p.next + 1
		switch {
		case c == 0 && open > 0:
			return nil, p.fail(open, "( is never closed; expected a )")
		case c == ')' && open == 0:
			return nil, p.fail(at, "found ) without a (")
		case c == 0 || c == ')':
			return items, nil
		}
		part, err := p.part(c)
		if err != nil {
			return nil, err
		}
		times, err := p.times()
		if err != nil {
			return nil, err
		}
		if len(part)*times > layoutItemsMax-len(items) {
			return nil, p.fail(at, "makes more than %d items; expected num_layers letters t and mtp_num_layers letters m", layoutItemsMax)
		}
		for range times {
			items = append(items, part...)
		}
	}
}

// part reads a letter, a bar or a bracket with what is inside.
func (p *layoutParser) part(c byte) ([]item, error) {
	p.next++
	at := p.next
	switch c {
	case 'E', 't', 'm', 'L', '|':
		return []item{{c, at}}, nil
	case '(':
		items, err := p.sequence(at)
		p.next++ // its )
		return items, err
	case '*':
		return nil, p.fail(at, "found * with nothing before it to repeat")
	}
	return nil, p.fail(at, "found %q; expected E (embedding), t (decoder layer), m (MTP depth), L (loss), | (next chunk), ( or *", p.letter(at))
}

// letter is the whole character at byte at−1, which may be longer than a byte.
func (p *layoutParser) letter(at int) string {
	for _, r := range p.text[at-1:] {
		return string(r)
	}
	return ""
}

// times reads "*n"; 1 if there is none.
func (p *layoutParser) times() (int, error) {
	if p.peek() != '*' {
		return 1, nil
	}
	p.next++
	p.peek()
	start, n := p.next, 0
	for p.next < len(p.text) && p.text[p.next] >= '0' && p.text[p.next] <= '9' {
		if n = 10*n + int(p.text[p.next]-'0'); n > layoutItemsMax {
			return 0, p.fail(start+1, "repeats more than %d times", layoutItemsMax)
		}
		p.next++
	}
	if n == 0 {
		return 0, p.fail(start+1, "expected how often, from 1, after *")
	}
	return n, nil
}

// place makes chunks of items and checks them; end is the character after the text.
func place(items []item, pp int, stack Stack, end int) (Layout, error) {
	b := layoutBuilder{stack: stack, l: Layout{PP: pp, Chunks: make([]Chunk, 1)}}
	for i, it := range items {
		if err := b.add(it, i == 0, i == len(items)-1); err != nil {
			return Layout{}, err
		}
	}
	chunks := len(b.l.Chunks)
	switch {
	case len(items) == 0:
		return Layout{}, &LayoutError{1, "is empty; expected E first and L last, as Ett|ttL"}
	case b.layers < stack.Layers:
		return Layout{}, &LayoutError{end, fmt.Sprintf("has %d letters t, expected num_layers = %d", b.layers, stack.Layers)}
	case b.depths < stack.Depths:
		return Layout{}, &LayoutError{end, fmt.Sprintf("has %d letters m, expected mtp_num_layers = %d", b.depths, stack.Depths)}
	case chunks%pp != 0:
		return Layout{}, &LayoutError{end, fmt.Sprintf("has %d chunks, expected a multiple of pipeline_model_parallel_size %d", chunks, pp)}
	}
	b.l.VPP = chunks / pp
	return b.l, b.depthPlaces()
}

// layoutBuilder fills chunks item by item.
type layoutBuilder struct {
	l              Layout
	stack          Stack
	layers, depths int
	firstOf        []int // character of the first m of each chunk with depths
	depthChunks    []int // these chunks
}

// add is the next item. The chunk being filled is the last.
func (b *layoutBuilder) add(it item, first, last bool) error {
	fail := func(format string, args ...any) error { return &LayoutError{it.at, fmt.Sprintf(format, args...)} }
	c := &b.l.Chunks[len(b.l.Chunks)-1]
	switch {
	case (it.kind == 'E') != first:
		return fail("found %c; expected E exactly once, as the first letter", it.kind)
	case (it.kind == 'L') != last:
		return fail("found %c; expected L exactly once, as the last letter", it.kind)
	}
	switch it.kind {
	case 'E':
		c.Embedding = true
	case 'L':
		c.Loss = true
	case '|':
		b.l.Chunks = append(b.l.Chunks, Chunk{})
	case 't':
		switch {
		case b.depths > 0:
			return fail("found t after an m; expected every decoder layer before the MTP depths")
		case b.layers == b.stack.Layers:
			return fail("found one t more than num_layers = %d", b.stack.Layers)
		}
		c.Layers = append(c.Layers, b.layers)
		b.layers++
	case 'm':
		if b.depths == b.stack.Depths {
			return fail("found one m more than mtp_num_layers = %d", b.stack.Depths)
		}
		if len(c.Depths) == 0 {
			b.firstOf, b.depthChunks = append(b.firstOf, it.at), append(b.depthChunks, len(b.l.Chunks)-1)
		}
		b.depths++
		c.Depths = append(c.Depths, b.depths)
	}
	return nil
}

// depthPlaces checks where the MTP depths lie: all in one chunk, or one each in chunks in sequence, which are the last of
// their ranks; a repeated layer on one chunk only.
func (b *layoutBuilder) depthPlaces() error {
	for i, j := range b.depthChunks {
		fail := func(format string, args ...any) error {
			return &LayoutError{b.firstOf[i], fmt.Sprintf(format, args...)}
		}
		several := len(b.depthChunks) > 1
		switch {
		case several && len(b.l.Chunks[j].Depths) > 1:
			return fail("chunk %d has %d of the %d MTP depths; expected all in one chunk, or one each in chunks in sequence", j, len(b.l.Chunks[j].Depths), b.depths)
		case i > 0 && j != b.depthChunks[i-1]+1:
			return fail("MTP depth %d is in chunk %d, depth %d in chunk %d; expected chunks in sequence", i+1, j, i, b.depthChunks[i-1])
		case i > 0 && b.stack.Repeated:
			return fail("mtp_use_repeated_layer has one layer for all depths; expected all m in one chunk")
		case b.l.Virtual(j) != b.l.VPP-1:
			return fail("MTP depth in chunk %d, which is virtual chunk %d of rank %d; expected the last virtual chunk, %d, of a rank", j, b.l.Virtual(j), b.l.Rank(j), b.l.VPP-1)
		}
	}
	return nil
}
