package model

import (
	"testing"

	"phalanx/nn"
)

// BenchPoint is a layer's point when nobody looks.
func BenchPoint(b *testing.B) {
	r, ctx := &Rank[float32]{}, &nn.Ctx[float32]{Scope: "layer.1"}
	b.ReportAllocs()
	for b.Loop() {
		r.point(ctx, "forward")
	}
}
