package convert

import (
	"fmt"
	"os"

	"phalanx/config"
)

// job is one conversion.
type job struct {
	copy *copier
	o    Options
	r    *Report
	t    Tensors
	m    *config.Model
}

func (j *job) close() {
	if j.t != nil {
		_ = j.t.Close() // it was only read
	}
}

// route finds the source of every tensor.
func (j *job) route(where string) (*router, error) {
	r := &router{t: j.t, where: where, m: j.m, used: map[string]bool{}}
	r.find(Parameters(j.m), j.o.DropMTP)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	asked := stored[j.o.DType]
	if asked == "" && j.r.Direction == "import" {
		asked = "F32"
	}
	j.count(r.routes, asked)
	j.r.Dropped, j.r.MTPLayers = r.left, storedDepths(j.m)
	if j.o.DropMTP && len(r.left) == 0 && j.r.Direction == "import" {
		j.r.Notes = append(j.r.Notes, "--drop-mtp: the model has no MTP layer")
	}
	return r, nil
}

// checkCopies compares what an MTP layer says again, before anything is written.
func (j *job) checkCopies(r *router, where string) error {
	for _, d := range r.duplicates {
		if err := j.copy.same(j.t, d, where); err != nil {
			return err
		}
		j.r.Checked = append(j.r.Checked, Left{d.name, "equals " + d.of})
	}
	return nil
}

// count fills in the report's figures of tensors to write.
func (j *job) count(rs []route, asked string) {
	read, wrote := map[string]bool{}, map[string]bool{}
	j.r.Tensors, j.r.Parameters, j.r.Bytes = len(rs), 0, 0
	for _, r := range rs {
		n, _ := infoOf(r, asked).Bytes()
		j.r.Bytes += n
		j.r.Parameters += r.count
		wrote[dtypeOf(r, asked)] = true
		if r.source != "" {
			read[r.dtype] = true
		}
	}
	j.r.Read, j.r.Wrote = sortedKeys(read), sortedKeys(wrote)
}

// write makes the folder with what fill writes into it.
func (j *job) write(fill func(out *output) error) error {
	out, err := newOutput(j.r.To, j.copy)
	if err != nil {
		return err
	}
	if err := fill(out); err != nil {
		out.abandon()
		return err
	}
	if err := out.commit(); err != nil {
		out.abandon()
		return fmt.Errorf("%s: cannot be put in its place: %v", j.r.To, cause(err))
	}
	j.r.Files, j.r.Bytes = out.files, out.bytes
	if _, err := os.Stat(j.r.To); err != nil {
		return fileError(j.r.To, err)
	}
	return nil
}
