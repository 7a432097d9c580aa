package run

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"phalanx/checkpoint"
	"phalanx/config"
)

// CheckFiles reports files of same_as that are not there, or that no run can be compared with. out is the run's --out. Those
// that made knows, by their names in the scenario, are not looked at: runs before this one write them. Nor are those in the
// folder that the run itself saves to.
func CheckFiles(s config.Scenario, out string, made func(file string) bool) (bad []*KeyError) {
	j := &job{s: s, o: Options{Out: out}}
	for i, e := range s.Expect {
		if !namesFile(e) || made(e.SameAs) || s.Checkpoint.Save != "" && Inside(s.Checkpoint.Save, e.SameAs) {
			continue
		}
		if err := j.comparable(e.SameAs); err != nil {
			bad = append(bad, &KeyError{fmt.Sprintf("expect.%d.same_as", i), err})
		}
	}
	return bad
}

// namesFile says whether an expectation compares with a file.
func namesFile(e config.Expect) bool {
	return e.SameAs != "" && e.SameAs != singleRank && e.SameAs != withoutFaults
}

// checkFiles is CheckFiles before the first step, when all that others make is made: the first that is wrong.
func (j *job) checkFiles() error {
	for _, e := range CheckFiles(j.s, j.o.Out, func(string) bool { return false }) {
		return e
	}
	return nil
}

// comparable reports a file that is neither a report of this run's name nor weights.
func (j *job) comparable(file string) error {
	path := j.found(file)
	err := readable(path, j.s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not there; expected the report of another run (run --json FILE, or report.json of --out), or its checkpoint", path)
	}
	return err
}

func readable(path, name string) error {
	if isReport(path) {
		_, err := readReport(path, name)
		return err
	}
	f, err := checkpoint.OpenAny(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// isReport says whether a file of same_as is read as a report; it is weights otherwise.
func isReport(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".json" || ext == ".jsonl"
}

// Inside says whether a path is a folder or below it.
func Inside(dir, path string) bool {
	rest, err := filepath.Rel(filepath.Clean(dir), filepath.Clean(path))
	return err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
}
