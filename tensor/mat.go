package tensor

import "fmt"

// Mat is a row-major matrix over a slice: element (r, c) is Data[r*Cols+c].
type Mat[T Number] struct {
	Rows, Cols int
	Data       []T
}

// NewMat allocates a zeroed Rows×Cols matrix on the heap.
func NewMat[T Number](rows, cols int) Mat[T] {
	return Mat[T]{Rows: rows, Cols: cols, Data: make([]T, rows*cols)}
}

// MatOf views data as rows×cols.
func MatOf[T Number](data []T, rows, cols int) Mat[T] {
	if len(data) != rows*cols {
		panic(fmt.Sprintf("tensor: %d elements are no %d×%d matrix", len(data), rows, cols))
	}
	return Mat[T]{Rows: rows, Cols: cols, Data: data}
}

// Row is row r.
func (m Mat[T]) Row(r int) []T { return m.Data[r*m.Cols : (r+1)*m.Cols : (r+1)*m.Cols] }

// Slice is rows [from, to).
func (m Mat[T]) Slice(from, to int) Mat[T] {
	return Mat[T]{Rows: to - from, Cols: m.Cols, Data: m.Data[from*m.Cols : to*m.Cols : to*m.Cols]}
}

// Empty reports whether the matrix was never set.
func (m Mat[T]) Empty() bool { return m.Data == nil }
