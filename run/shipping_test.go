package run

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"phalanx/model"
	"phalanx/nn"
)

func TestShardsOfAnotherProcess(t *testing.T) {
	spec := &nn.Spec{Name: "a.weight", Shape: []int{4, 2}, Shard: nn.Shard{Dim: 0, Parts: 2, Index: 1}}
	views := []model.ShardView{{Spec: spec, F32: []float32{1, float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 4}, TPRank: 1, DPRank: 2},
		{Spec: &nn.Spec{Name: "b", Shape: []int{1}, Shard: nn.Unsharded}, F64: []float64{math.Pi}}}
	e := shipShards(3, "weights", 7, views)
	require.Equal(t, e, shipShards(3, "weights", 7, views))
	got, err := unshipShards(e)
	require.NoError(t, err)
	require.Equal(t, views, got)
	e.Body = e.Body[:len(e.Body)-1]
	_, err = unshipShards(e)
	require.Error(t, err)
}

// kept keeps what it is shown.
type kept struct{ all []nn.Observation }

func (k *kept) Wants(string, int) bool   { return true }
func (k *kept) Observe(o nn.Observation) { k.all = append(k.all, o) }

func TestObservationsOfAnotherProcess(t *testing.T) {
	frame := nn.NewFrames(nil, 1, 4, 2, 1)[1]
	s := &shipper{rank: 2, wants: func(name string, step int) bool { return step == 1 }}
	require.False(t, s.Wants("x", 0))
	_, any := s.take()
	require.False(t, any)
	values := []float64{1, 2}
	first := nn.Observation{Name: "layer.0.hidden", Site: nn.Site{Step: 1, Microbatch: 1}, Shape: nn.Slots, Layout: nn.CPLocal, Frame: frame, R: 2, C: 1, Values: values, Exact: true}
	second := first
	second.Site.Microbatch, second.Frame, second.Shape = 0, nil, nn.Plain
	s.Observe(nn.Observation{Site: nn.Site{Step: 0}})
	s.Forget(0)
	s.Observe(first)
	s.Observe(second)
	e, any := s.take()
	require.True(t, any)
	_, any = s.take()
	require.False(t, any)
	var got kept
	require.NoError(t, unshipObservations(e, &got))
	require.Len(t, got.all, 2, "microbatch 0 first")
	require.Equal(t, second, got.all[0])
	require.Equal(t, frame.Src, got.all[1].Frame.Src)
	require.Equal(t, first.Layout, got.all[1].Layout)
	require.Equal(t, values, got.all[1].Values)
}
