package convert

import (
	"slices"

	"phalanx/checkpoint"
)

// toHF exports a checkpoint of this program.
func (j *job) toHF(dir string, c *object) error {
	m, notes, err := checkpointModel(c)
	if err != nil {
		return err
	}
	t, more, err := openTensors(dir)
	if err != nil {
		return err
	}
	j.r.Direction, j.r.Notes, j.m, j.t = "export", append(notes, more...), m, t
	whole := *m
	if j.o.DropMTP {
		m.MTPNumLayers, m.MTPUseRepeatedLayer = 0, false
	}
	r, err := j.route(dir)
	if err != nil {
		return err
	}
	asked := stored[j.o.DType]
	a, w, err := exported(m, j.o.Architecture, torch[common(r.routes, asked)], c.path)
	if err != nil {
		return err
	}
	if j.o.DropMTP && whole.MTPNumLayers == 0 {
		j.r.Notes = append(j.r.Notes, "--drop-mtp: the model has no MTP layer")
	}
	j.r.Architecture = a.kind
	routes := j.completed(r.routes, w)
	j.count(routes, asked)
	if j.o.DryRun {
		return nil
	}
	return j.write(func(out *output) error {
		if err := out.text(checkpoint.ConfigName, w.configJSON()); err != nil {
			return err
		}
		return out.shards(t, routes, asked, j.o.ShardBytes)
	})
}

// completed adds what the architecture has beside the model's own tensors: the copies that MTP layers hold, and biases
// of zero. They stand behind the layer they belong to.
func (j *job) completed(rs []route, w *writer) []route {
	by := map[string]route{}
	for _, r := range rs {
		by[r.Name] = r
	}
	out := slices.Clone(rs)
	for k := range storedDepths(j.m) {
		for _, d := range depthCopies(j.m, k) {
			r := by[d.of]
			r.Name = d.name
			out = append(out, r)
			j.r.Added = append(j.r.Added, Left{d.name, "copy of " + d.of})
		}
	}
	for _, p := range w.zeros {
		out = append(out, route{Param: p, dtype: "F32", count: int64(p.Shape[0])})
		j.r.Added = append(j.r.Added, Left{p.Name, "zero: the architecture has an expert bias"})
	}
	return out
}

// common is the type of most elements to write.
func common(rs []route, asked string) string {
	n := map[string]int64{}
	for _, r := range rs {
		n[dtypeOf(r, asked)] += r.count
	}
	best := ""
	for _, t := range sortedKeys(n) {
		if best == "" || n[t] > n[best] {
			best = t
		}
	}
	return best
}
