package bpe

import (
	"slices"
	"strings"
)

// matcher finds added tokens in a text. The zero value finds none.
type matcher struct {
	ids    map[string]int32
	byHead map[byte][]string // by first byte, the longest first
}

// put adds a token. An empty one is never found.
func (m *matcher) put(token string, id int32) {
	if token == "" {
		return
	}
	if m.ids == nil {
		m.ids, m.byHead = map[string]int32{}, map[byte][]string{}
	}
	m.ids[token] = id
	list := append(m.byHead[token[0]], token)
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	m.byHead[token[0]] = list
}

// cut calls found with every token of a text and between with every non-empty part between them, in order.
func (m *matcher) cut(text string, found func(id int32), between func(text string)) {
	from := 0
	for i := 0; i < len(text) && m.ids != nil; {
		token := m.at(text[i:])
		if token == "" {
			i++
			continue
		}
		if from < i {
			between(text[from:i])
		}
		found(m.ids[token])
		i += len(token)
		from = i
	}
	if from < len(text) {
		between(text[from:])
	}
}

// at is the longest token that a text starts with, or "".
func (m *matcher) at(text string) string {
	for _, token := range m.byHead[text[0]] {
		if strings.HasPrefix(text, token) {
			return token
		}
	}
	return ""
}
