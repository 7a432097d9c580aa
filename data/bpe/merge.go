package bpe

// merger merges the bytes of a piece. Its buffers are used again.
type merger struct {
	at   []symbol
	heap []uint64 // rank<<32 | position of the left one, the smallest first
}

// symbol is a token of a piece while it is being merged; it stands at the position of its first byte.
type symbol struct {
	id         int32 // −1: merged into one on its left
	next, prev int32 // positions; len(piece) and −1 at the ends
}

// merge appends the ids of a piece. It takes n log n steps for n bytes.
func (m *merger) merge(ids []int32, t *Tokenizer, piece string) []int32 {
	m.at, m.heap = m.at[:0], m.heap[:0]
	for i := range len(piece) {
		m.at = append(m.at, symbol{id: t.bytes[piece[i]], next: int32(i + 1), prev: int32(i - 1)})
	}
	for i := range len(piece) - 1 {
		m.push(t, int32(i))
	}
	for len(m.heap) > 0 {
		top := m.pop()
		m.join(t, int32(uint32(top)), int32(top>>32))
	}
	for i := int32(0); int(i) < len(piece); i = m.at[i].next {
		ids = append(ids, m.at[i].id)
	}
	return ids
}

// pairAt is what the token at a position and the one behind it become; ok is false if they become nothing.
func (m *merger) pairAt(t *Tokenizer, i int32) (to merge, ok bool) {
	left := m.at[i]
	if left.id < 0 || int(left.next) == len(m.at) {
		return merge{}, false
	}
	to, ok = t.pairs[pair(left.id, m.at[left.next].id)]
	return to, ok
}

// join merges the pair at a position, unless the position has another pair by now.
func (m *merger) join(t *Tokenizer, i, rank int32) {
	to, ok := m.pairAt(t, i)
	if !ok || to.rank != rank {
		return
	}
	right := m.at[i].next
	m.at[i].id, m.at[i].next = to.id, m.at[right].next
	m.at[right].id = -1
	if next := m.at[i].next; int(next) < len(m.at) {
		m.at[next].prev = i
		m.push(t, i)
	}
	if prev := m.at[i].prev; prev >= 0 {
		m.push(t, prev)
	}
}

// push puts the pair at a position on the heap, if it has a rank.
func (m *merger) push(t *Tokenizer, i int32) {
	to, ok := m.pairAt(t, i)
	if !ok {
		return
	}
	m.heap = append(m.heap, uint64(to.rank)<<32|uint64(uint32(i)))
	for c := len(m.heap) - 1; c > 0; {
		p := (c - 1) / 2
		if m.heap[p] <= m.heap[c] {
			return
		}
		m.heap[p], m.heap[c] = m.heap[c], m.heap[p]
		c = p
	}
}

// pop takes the smallest off the heap.
func (m *merger) pop() uint64 {
	top, n := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[n]
	m.heap = m.heap[:n]
	for p := 0; ; {
		c := 2*p + 1
		if c >= n {
			return top
		}
		if c+1 < n && m.heap[c+1] < m.heap[c] {
			c++
		}
		if m.heap[p] <= m.heap[c] {
			return top
		}
		m.heap[p], m.heap[c] = m.heap[c], m.heap[p]
		p = c
	}
}
