package nn

// Turn shows tests how a head is turned at a position.
func (t *RopeTable[T]) Turn(x []T, p int) { t.rotate(x, p) }
