package data

import (
	"fmt"

	"phalanx/nn"
)

// embeddingStd is the deviation of precomputed embeddings: Megatron's default init_method_std, so that a model starts
// as it would from its own table.
const embeddingStd = 0.02

// embed gives a microbatch precomputed embeddings [B, S, H], if the dataset has them. Each value is a pure function of
// (seed, name, row, position, feature): the same row has the same ones in every step, and no microbatch size enters.
// Padding has values as well; they must not matter. identity is row b's number among all rows of that name.
func (g geometry) embed(m *nn.Microbatch, name string, identity func(b int) int) {
	if g.hidden == 0 {
		return
	}
	n := m.S * g.hidden
	m.Embeddings = make([]float64, m.B*n)
	for b := range m.B {
		r := newStream(g.seed, name+" embeddings", identity(b))
		row := m.Embeddings[b*n : (b+1)*n]
		for i := range row {
			row[i] = embeddingStd * r.normal()
		}
	}
}

// embedded is the embeddings in a summary.
func (g geometry) embedded() string {
	if g.hidden == 0 {
		return ""
	}
	return fmt.Sprintf(", precomputed embeddings of %d", g.hidden)
}
