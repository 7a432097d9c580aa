package nn

import (
	"phalanx/tensor"
	"phalanx/tensor/kernel"
)

// Use is the accumulator of one use of a parameter. That of a lookup has a few rows of a table which are not zero: where it
// knows them (Spec.ByRow), only they are added and cleared.
type Use[T tensor.Float] struct {
	Grad []T
	rows []bool // that may be other than zero; nil: all
}

func newUse[T tensor.Float](s *Spec) Use[T] {
	u := Use[T]{Grad: make([]T, s.Local())}
	if s.ByRow {
		u.rows = make([]bool, s.LocalShape()[0])
	}
	return u
}

// Row is row i, of h elements, to be added to.
func (u Use[T]) Row(i, h int) []T {
	if u.rows != nil {
		u.rows[i] = true
	}
	return u.Grad[i*h : (i+1)*h]
}

// AddTo adds the accumulator to another of the same parameter.
func (u Use[T]) AddTo(sum []T) {
	if u.rows == nil {
		kernel.AddInto(sum, u.Grad)
		return
	}
	h := len(u.Grad) / len(u.rows)
	for i, touched := range u.rows {
		if touched {
			kernel.AddInto(sum[i*h:(i+1)*h], u.Grad[i*h:(i+1)*h])
		}
	}
}

func (u Use[T]) clear() {
	if u.rows == nil {
		clear(u.Grad)
		return
	}
	h := len(u.Grad) / len(u.rows)
	for i, touched := range u.rows {
		if touched {
			clear(u.Grad[i*h : (i+1)*h])
		}
	}
	clear(u.rows)
}
