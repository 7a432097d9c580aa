package model

import (
	"encoding/binary"
	"fmt"

	"phalanx/messages"
	"phalanx/tensor"
)

// LocalError is a local state that cannot be taken up.
type LocalError struct {
	Rank int
	Why  string
}

func (e *LocalError) Error() string {
	return fmt.Sprintf("the local state of rank %d cannot be read: %s; expected one of the same scenario, layout and build", e.Rank, e.Why)
}

// localMagic opens a local state ("PxLs", little-endian).
const localMagic = 0x734c7850

// A local state is: magic u32, bytes of an element u32, iteration, samples, updates u64 each; then the elements of every
// slice in the order of locals, as they lie in memory (little-endian); then the CRC-32C of all before.
const localHead = 4 + 4 + 3*8

// locals is everything that a rank holds between two steps, copies of other ranks' parameters too: weights, expert biases
// and moments. What else a step needs follows from the seed and the position.
func (r *Rank[T]) locals() [][]T {
	var all [][]T
	for _, p := range r.params.List {
		all = append(all, p.Data)
	}
	for _, router := range r.routers {
		if router.Bias != nil {
			all = append(all, router.Bias.Values)
		}
	}
	for _, p := range r.adam.State() {
		all = append(all, p.ExpAvg, p.ExpAvgSq)
	}
	return all
}

// local is the rank's whole state as bytes.
func (r *Rank[T]) local() []byte {
	le, size := binary.LittleEndian, tensor.DTypeOf[T]().Size()
	n := localHead + 4
	for _, x := range r.locals() {
		n += size * len(x)
	}
	b := make([]byte, 0, n)
	b = le.AppendUint32(b, localMagic)
	b = le.AppendUint32(b, uint32(size))
	b = le.AppendUint64(b, uint64(r.position.Iteration))
	b = le.AppendUint64(b, uint64(r.position.Samples))
	b = le.AppendUint64(b, uint64(r.adam.Steps()))
	for _, x := range r.locals() {
		b = append(b, tensor.Bytes(x)...)
	}
	return le.AppendUint32(b, messages.Checksum(b))
}

// takeLocal is the inverse of local.
func (r *Rank[T]) takeLocal(b []byte) error {
	le, size := binary.LittleEndian, tensor.DTypeOf[T]().Size()
	want := localHead + 4
	for _, x := range r.locals() {
		want += size * len(x)
	}
	switch {
	case len(b) != want:
		return &LocalError{r.env.Rank, fmt.Sprintf("found %d bytes, expected %d", len(b), want)}
	case le.Uint32(b) != localMagic || int(le.Uint32(b[4:])) != size:
		return &LocalError{r.env.Rank, fmt.Sprintf("found magic %#x and elements of %d bytes, expected %#x and %d", le.Uint32(b), le.Uint32(b[4:]), localMagic, size)}
	}
	body := b[:len(b)-4]
	if found, sum := messages.Checksum(body), le.Uint32(b[len(body):]); found != sum {
		return &LocalError{r.env.Rank, fmt.Sprintf("found checksum %08x, expected %08x", found, sum)}
	}
	r.position.Iteration, r.position.Samples = int(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))
	r.saved = r.wrote(r.position.Iteration)
	r.adam.SetSteps(int(le.Uint64(b[24:])))
	body = body[localHead:]
	for _, x := range r.locals() {
		body = body[copy(tensor.Bytes(x), body):]
	}
	return nil
}

// boundary shows that a step begins, or that the last one has ended.
func (r *Rank[T]) boundary() {
	if r.env.Boundary != nil {
		r.env.Boundary(r.position.Iteration, r.local)
	}
}
