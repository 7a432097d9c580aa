package nn

import (
	"fmt"
	"unsafe"

	"phalanx/tensor"
)

// extend is one slice over the neighbouring slices of parts. Build laid them out one after another in one buffer;
// a module that joined parameters which are no neighbours is a programmer error.
func extend[T tensor.Float](parts []*Param[T], of func(*Param[T]) []T) []T {
	first := of(parts[0])
	n := 0
	for _, p := range parts {
		s := of(p)
		if len(s) > 0 && unsafe.Pointer(unsafe.SliceData(s)) != unsafe.Add(unsafe.Pointer(unsafe.SliceData(first)), n*int(unsafe.Sizeof(first[0]))) {
			panic(fmt.Sprintf("nn: parameter %s is no neighbour of %s", p.Name, parts[0].Name))
		}
		n += len(s)
	}
	return unsafe.Slice(unsafe.SliceData(first), n)
}
