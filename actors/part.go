package actors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"phalanx/collective"
	"phalanx/messages"
	"phalanx/nn"
	"phalanx/recovery"
	"phalanx/transport"
)

// Part is one process's share of a run of several processes. Each has its own links, on a network whose ranks are those of
// the run and, above them, the collector: the process that merges what ranks report, and takes no part else. It needs
// Recovery: a process dies with all of its ranks, and another is started in its place with a higher incarnation.
type Part struct {
	// Ranks are those of this process, ascending. None: this process is the collector.
	Ranks []int
	// Incarnation is that of this process, above those of the processes that had its ranks before.
	Incarnation uint32
	// Stores keep the snapshots of a rank where its next process finds them.
	Stores func(rank int) (Store, error)
	// Die ends this process at a panic in a rank, and does not return. site is the same whenever it dies there again.
	Die func(err *RankError, site string)
	// Status is kept up to date, for heartbeats.
	Status *Status
	// Tell sends a heartbeat now: a rank has recovered or is done, and the run may be over before the next; nil: nobody is told.
	Tell func()
	// Gate lets ranks pass from step to step; nil: always.
	Gate Gate
}

// Gate decides at every boundary whether a rank goes on. It may be called from several goroutines at once.
type Gate interface {
	// At is told of every boundary before a step that a life of a rank comes to. The rank goes on, ends without the step, or
	// waits until answer is called, which a later call for this rank makes void.
	At(rank int, step uint32, answer func(ends bool)) recovery.Pass
	// Reported is told of a rank that waits before a step whether the collector has reports of it from that step on.
	Reported(rank int, step uint32, ahead bool)
}

// check refuses a part that cannot be run.
func (p *Part) check(j Job) error {
	switch {
	case j.Network == nil:
		return fmt.Errorf("job %q: expected a Network", j.Name)
	case len(p.Ranks) > 0 && (j.Recovery == nil || p.Stores == nil || p.Die == nil):
		return fmt.Errorf("job %q: found a part of a run, expected Recovery, Stores and Die with it", j.Name)
	case len(p.Ranks) > 0 && (p.Incarnation == 0 || p.Incarnation >= 1<<(32-lifeBits)):
		return fmt.Errorf("job %q: found incarnation %d of a process, expected 1 to %d", j.Name, p.Incarnation, 1<<(32-lifeBits)-1)
	}
	for i, r := range p.Ranks {
		if r < 0 || r >= j.Sizes.World() || i > 0 && r <= p.Ranks[i-1] {
			return fmt.Errorf("job %q: found ranks %v of a process, expected some of 0 to %d, ascending", j.Name, p.Ranks, j.Sizes.World()-1)
		}
	}
	return nil
}

// Status is what heartbeats tell of the ranks of this process. It is safe for use by several goroutines.
type Status struct {
	mu     sync.Mutex
	ranks  map[int]*RankStatus
	alarms []string
}

// RankStatus is one rank's.
type RankStatus struct {
	Rank     int
	Step     int           // steps done
	Progress uint64        // operations of its programs in this life
	WaitsFor []int         // ranks whose messages its programs miss; nil: it computes, or is done
	Op       string        // in which it waits, or what it was last seen doing
	Since    time.Time     // of waiting; zero: it does not wait
	Compute  time.Duration // of its programs in the last whole step
	Done     bool
	Log      recovery.Peak // the most that its log has held, in this process
	// Recovered tells of the last life that is where the one before it died; nil: there was none.
	Recovered *messages.Restarted
}

// Waited is how long the rank has been waiting.
func (r *RankStatus) Waited() time.Duration {
	if r.Since.IsZero() {
		return 0
	}
	return time.Since(r.Since)
}

// Ranks are the ranks' states, ascending.
func (s *Status) Ranks() []RankStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]RankStatus, 0, len(s.ranks))
	for _, r := range s.ranks {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b RankStatus) int { return a.Rank - b.Rank })
	return all
}

// Alarms are what went wrong without ending anything, oldest first.
func (s *Status) Alarms() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.alarms)
}

// alarmsMax bounds the alarms that are kept: a full disk fails every snapshot.
const alarmsMax = 16

func (s *Status) alarm(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alarms) < alarmsMax {
		s.alarms = append(s.alarms, text)
	}
}

// change changes a rank's state.
func (s *Status) change(rank int, with func(*RankStatus)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ranks == nil {
		s.ranks = map[int]*RankStatus{}
	}
	if s.ranks[rank] == nil {
		s.ranks[rank] = &RankStatus{Rank: rank}
	}
	with(s.ranks[rank])
}

// asked takes the answers of a round. A rank that has not answered in full computes.
func (s *Status) asked(all []collective.Status, silent []int) {
	for _, rank := range silent {
		s.change(rank, func(r *RankStatus) { r.WaitsFor, r.Op, r.Since = nil, "", time.Time{} })
	}
	byRank := map[int][]collective.Status{}
	for _, a := range all {
		byRank[a.Rank] = append(byRank[a.Rank], a)
	}
	for rank, programs := range byRank {
		if slices.Contains(silent, rank) {
			continue
		}
		s.change(rank, func(r *RankStatus) { r.of(programs) })
	}
}

func (r *RankStatus) of(programs []collective.Status) {
	before := r.Progress
	r.Progress, r.WaitsFor, r.Op = 0, nil, ""
	for _, p := range programs {
		r.Progress += p.Progress
		if p.State != collective.InCollective || len(p.Missing) == 0 {
			continue
		}
		for _, m := range p.Missing {
			if !slices.Contains(r.WaitsFor, m) {
				r.WaitsFor = append(r.WaitsFor, m)
			}
		}
		if r.Op == "" {
			r.Op = p.Op + " " + place(p.Site)
		}
	}
	slices.Sort(r.WaitsFor)
	switch {
	case len(r.WaitsFor) == 0:
		r.Since = time.Time{}
	case r.Since.IsZero() || r.Progress != before:
		r.Since = time.Now()
	}
}

// place is a site without its step.
func place(s nn.Site) string {
	_, at, _ := strings.Cut(s.String(), " microbatch ")
	return "microbatch " + at
}

// part is the job's, nil in a run of one process.
func (r *run) part() *Part { return r.job.Part }

// status is where this process tells of its ranks; nil: nobody asks.
func (r *run) status() *Status {
	if p := r.part(); p != nil {
		return p.Status
	}
	return nil
}

// collects says whether this process is the collector.
func (r *run) collects() bool { return r.job.Part != nil && len(r.job.Part.Ranks) == 0 }

// collector is its number on the network.
func (r *run) collector() int { return r.job.Sizes.World() }

// collecting is the collector's number for a machine; 0: there is none.
func (r *run) collecting() int {
	if r.job.Part == nil {
		return 0
	}
	return r.collector()
}

// peers is the number of machines that take part in recovery.
func (r *run) peers() int {
	if r.job.Part == nil {
		return r.job.Sizes.World()
	}
	return r.job.Sizes.World() + 1
}

// local is the ranks of this process.
func (r *run) local() []int {
	if r.job.Part != nil {
		return r.job.Part.Ranks
	}
	all := make([]int, r.job.Sizes.World())
	for i := range all {
		all[i] = i
	}
	return all
}

// members is the ranks of this process on a stage, or with the collector all of the stage: it merges their reports.
func (r *run) members(stage int) []int {
	var of []int
	for _, rank := range r.local() {
		if r.stageOf(rank) == stage {
			of = append(of, rank)
		}
	}
	return of
}

// stages are those that have something to do in this process.
func (r *run) stages() []int {
	var list []int
	for s := range r.job.Sizes.PP {
		if r.collects() || len(r.members(s)) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// lifeBits are the bits of an incarnation that count the lives of a rank within one process.
const lifeBits = 10

// firstLife is below the number of the first life of a rank in this process.
func (r *run) firstLife() uint32 {
	if r.job.Part == nil {
		return 0
	}
	return r.job.Part.Incarnation << lifeBits
}

var errNoControl = errors.New("the network carries no control messages; expected a transport.Controller")

// livesAgain says whether a life is not the first of its rank.
func (r *run) livesAgain(life uint32) bool {
	return life > r.firstLife()+1 || r.job.Part != nil && r.job.Part.Incarnation > 1
}

// talk sends a control message of a machine to a peer: within the process by mail, else on the link.
func (r *run) talk(from int, c recovery.Control, mail func(recovery.Control)) error {
	if r.job.Part == nil {
		mail(c)
		return nil
	}
	link, ok := r.links[from].(transport.Controller)
	if !ok {
		return errNoControl
	}
	return link.Control(c.Dst, recovery.EncodeControl(c))
}
