package nn

import "phalanx/config/mutation"

// Frames makes the frames of the context-parallel group of a microbatch; mut plants bugs.
func Frames(mb *Microbatch, cp, align int, mut mutation.Set) []*Frame {
	return mutatedFrames(mb.Docs, mb.B, mb.S, cp, align, mut)
}

// RollFrame is the frame that rolls use. It is the frame itself but for bugs planted in where documents end.
func (f *Frame) RollFrame(docs Docs) *Frame {
	if !f.mut.Has(mutation.UnpaddedBoundaries | mutation.PhysicalEnd) {
		return f
	}
	wrong := make(Docs, f.B)
	for b := range wrong {
		at := 0
		for _, d := range docs.Row(b, f.S) {
			if f.mut.Has(mutation.PhysicalEnd) {
				d.Logical = d.Physical
			} else {
				d = Doc{Start: at, Logical: d.Logical, Physical: d.Logical}
			}
			at = d.Start + d.Physical
			wrong[b] = append(wrong[b], d)
		}
	}
	return mutatedFrames(wrong, f.B, f.S, f.CP, 1, 0)[f.CPRank]
}
