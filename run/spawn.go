package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"phalanx/config"
)

// A run of several processes has a folder that all of them know:
//
//	scenario.yaml    what is run, with all defaults
//	run.json         spawn: what else a process must know
//	snapshots/       of all ranks
//	parts/           what ranks have written of checkpoints
//	faults/          how often ranks have come by the points of faults
//	nats-1/ …        JetStream's files of the servers
//	worker-0.log …   what the processes have written on their standard error
const (
	spawnScenario  = "scenario.yaml"
	spawnFile      = "run.json"
	spawnSnapshots = "snapshots"
	spawnFaults    = "faults"
	spawnParts     = "parts"
)

// spawn is what every process of a run must know besides the scenario.
type spawn struct {
	Run     string        `json:"run"` // id: part of subjects
	URL     string        `json:"url"` // of the NATS servers, separated by commas
	Build   uint64        `json:"build"`
	Procs   int           `json:"procs"`
	Dir     string        `json:"dir"`            // of the scenario's file
	Out     string        `json:"out"`            // as Options.Out
	Case    string        `json:"case,omitempty"` // reference case, if one is verified
	Host    string        `json:"host"`
	Threads int           `json:"threads"`
	Servers []spawnServer `json:"servers,omitempty"` // that the run has started itself
	Copies  int           `json:"copies"`            // of what JetStream keeps
}

// spawnServer is one NATS server.
type spawnServer struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Cluster string `json:"cluster,omitempty"` // where the other servers reach it
}

// ranksOf are the ranks of a worker: as many as the others have, or one more.
func (s *spawn) ranksOf(worker, world int) []int {
	var ranks []int
	for r := worker * world / s.Procs; r < (worker+1)*world/s.Procs; r++ {
		ranks = append(ranks, r)
	}
	return ranks
}

// threadsEach is the compute threads of one of some processes: what the scenario says, or the cores in equal shares.
func threadsEach(s *config.Scenario, procs int) int {
	if s.Train.Threads > 0 {
		return s.Train.Threads
	}
	return max(1, runtime.NumCPU()/procs)
}

// write makes the folder.
func (s *spawn) write(dir string, scenario *config.Scenario) error {
	for _, d := range []string{dir, filepath.Join(dir, spawnSnapshots), filepath.Join(dir, spawnFaults), filepath.Join(dir, spawnParts)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("the folder of the run: %w", err)
		}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", spawnFile, err)
	}
	if err := os.WriteFile(filepath.Join(dir, spawnFile), append(b, '\n'), 0o600); err != nil { // it may hold a password
		return fmt.Errorf("the folder of the run: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, spawnScenario), scenario.Normalised(), 0o644); err != nil {
		return fmt.Errorf("the folder of the run: %w", err)
	}
	return nil
}

// FolderError is a folder in which a process of a run finds no run, or one of another build.
type FolderError struct {
	Dir string
	Err error
}

func (e *FolderError) Error() string {
	return fmt.Sprintf("%s is no folder of a run: %v; expected the one that `phalanx run --procs N` of this build has made, which starts its processes itself", e.Dir, e.Err)
}

// Unwrap says what is wrong with it.
func (e *FolderError) Unwrap() error { return e.Err }

// readSpawn reads the folder. A scenario that another build would understand differently is refused. The error is a *FolderError.
func readSpawn(dir string) (*spawn, config.Scenario, error) {
	s, scenario, err := readFolder(dir)
	if err != nil {
		return nil, config.Scenario{}, &FolderError{dir, err}
	}
	return s, scenario, nil
}

func readFolder(dir string) (*spawn, config.Scenario, error) {
	var s spawn
	var scenario config.Scenario
	b, err := os.ReadFile(filepath.Join(dir, spawnFile))
	if err != nil {
		return nil, scenario, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, scenario, fmt.Errorf("%s: %w", spawnFile, err)
	}
	path := filepath.Join(dir, spawnScenario)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, scenario, err
	}
	file, problems := config.Parse(path, text, nil)
	if len(problems) > 0 {
		return nil, scenario, problems
	}
	scenario = file.Runs()[0]
	scenario.Dir = s.Dir
	if build := buildID(&scenario); build != s.Build {
		return nil, scenario, fmt.Errorf("found build %016x in %s, expected %016x", s.Build, spawnFile, build)
	}
	return &s, scenario, nil
}

// one checks the number of one of several processes.
func (s *spawn) one(flag string, number, of int) error {
	if number < 0 || number >= of {
		return &RefusedError{What: flag, Err: fmt.Errorf("found %d, expected the number of one of %d, from 0", number, of)}
	}
	return nil
}
