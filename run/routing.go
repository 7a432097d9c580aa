package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"phalanx/checkpoint"
	"phalanx/config"
	"phalanx/moe"
)

// routing is the choices of a run's routers (model.moe_enable_routing_replay): recorded into a file, or played from one.
// The file is safetensors: for each step, microbatch of the step and router the experts [S, B, K] of every row, int32.
type routing struct {
	topk int
	mu   sync.Mutex
	kept map[moe.Forward][]int32 // [S·B, K]; −1 where no rank has given anything yet
}

// errRouting is the kind of a file that holds other choices than a scenario asks for.
var errRouting = errors.New("not the routing of this scenario")

// tensorName is the name of a forward in the file: steps count from 1, as in expectations.
func tensorName(f moe.Forward) string {
	return fmt.Sprintf("step.%d.microbatch.%d.%s.router", f.Step+1, f.Microbatch, f.Router)
}

// openRouting reads the choices to play, or prepares to record; nil: neither.
func (j *job) openRouting() (*routing, error) {
	if !j.s.Model.MoEEnableRoutingReplay || !j.s.Model.HasMoE() {
		return nil, nil
	}
	r := &routing{topk: j.s.Model.MoERouterTopK, kept: map[moe.Forward][]int32{}}
	if j.s.Checkpoint.LoadRouting == "" {
		return r, nil
	}
	path := j.below(j.s.Checkpoint.LoadRouting)
	if _, err := os.Stat(path); err != nil {
		path = located(&j.s, j.s.Checkpoint.LoadRouting)
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		return nil, missing("checkpoint.load_routing", err)
	}
	defer f.Close()
	for step := j.first(); step < j.s.Train.TrainIters; step++ {
		for mb := range j.train.Microbatches() {
			rows := j.train.Microbatch(step, mb).S * j.s.Train.MicroBatchSize
			for _, router := range routers(&j.s.Model) {
				at := moe.Forward{Step: step, Microbatch: mb, Router: router}
				if r.kept[at], err = readChoices(f, tensorName(at), rows, &j.s.Model); err != nil {
					return nil, err
				}
			}
		}
	}
	return r, nil
}

// routers are the scopes of a model's routers.
func routers(m *config.Model) []string {
	var names []string
	for i := range m.NumLayers {
		if m.MoELayerFreq.IsMoE(i) {
			names = append(names, fmt.Sprintf("layer.%d", i))
		}
	}
	for k := range m.MTPNumLayers {
		if m.MoELayerFreq.IsMoE(m.NumLayers - 1) {
			names = append(names, fmt.Sprintf("mtp.%d", k+1))
		}
	}
	return names
}

// readChoices reads the experts of rows, and checks that each row has as many as the router chooses, all different.
func readChoices(f *checkpoint.File, name string, rows int, m *config.Model) ([]int32, error) {
	wide, err := f.Int64s(name)
	if err != nil {
		return nil, err
	}
	k := m.MoERouterTopK
	wrong := func(found, expected string) error {
		return &checkpoint.FormatError{Path: f.Path(), Tensor: name, Found: found, Expected: expected, Kind: errRouting}
	}
	if info, _ := f.Info(name); len(wide) != rows*k || info.Shape[len(info.Shape)-1] != k {
		return nil, wrong(fmt.Sprintf("shape %v", info.Shape), fmt.Sprintf("%d experts of each of %d rows", k, rows))
	}
	out := make([]int32, len(wide))
	for i, e := range wide {
		if e < 0 || e >= int64(m.NumMoEExperts) || slices.Contains(out[i-i%k:i], int32(e)) {
			return nil, wrong(fmt.Sprintf("expert %d as choice %d of row %d", e, i%k, i/k), fmt.Sprintf("%d different experts from 0 to %d", k, m.NumMoEExperts-1))
		}
		out[i] = int32(e)
	}
	return out, nil
}

// replay is the routing as routers use it.
func (j *job) replay() *moe.Replay {
	switch {
	case j.routing == nil:
		return nil
	case j.s.Checkpoint.LoadRouting != "":
		return &moe.Replay{Play: j.routing.play}
	}
	return &moe.Replay{Record: j.routing.record}
}

// play needs no lock: nothing is written while a run plays.
func (r *routing) play(f moe.Forward, rows []int, experts []int32) {
	kept := r.kept[f]
	for i, row := range rows {
		if row >= 0 {
			copy(experts[i*r.topk:(i+1)*r.topk], kept[row*r.topk:])
		}
	}
}

func (r *routing) record(f moe.Forward, rows []int, experts []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.kept[f]
	for i, row := range rows {
		for row >= 0 && len(kept) < (row+1)*r.topk {
			kept = append(kept, -1)
		}
		if row >= 0 {
			copy(kept[row*r.topk:], experts[i*r.topk:(i+1)*r.topk])
		}
	}
	r.kept[f] = kept
}

// saveRouting writes what a whole run recorded.
func (j *job) saveRouting() error {
	if j.routing == nil || j.s.Checkpoint.SaveRouting == "" {
		return nil
	}
	var tensors []checkpoint.Tensor
	b, k := j.s.Train.MicroBatchSize, j.routing.topk
	for f, experts := range j.routing.kept {
		tensors = append(tensors, checkpoint.Of(tensorName(f), experts, len(experts)/(b*k), b, k))
	}
	path := j.below(j.s.Checkpoint.SaveRouting)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return checkpoint.Write(path, tensors, map[string]string{"format": "phalanx routing", "scenario": j.s.Name})
}
