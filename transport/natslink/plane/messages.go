package plane

import (
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"phalanx/recovery"
)

// Beat is what a worker says of itself, some times a second. It may be lost.
type Beat struct {
	Worker      int        `cbor:"1,keyasint"`
	Incarnation uint32     `cbor:"2,keyasint"`
	PID         int        `cbor:"3,keyasint"`
	RSSBytes    uint64     `cbor:"4,keyasint,omitempty"`
	Ranks       []RankBeat `cbor:"5,keyasint,omitempty"` // ascending; nil: it has not yet begun
	Links       Links      `cbor:"7,keyasint,omitzero"`  // what the links of this process have healed
	Alarms      []string   `cbor:"6,keyasint,omitempty"` // what has failed without ending anything: a few, in every beat
	// Claim is what the worker says to the end that it has heard of.
	Claim recovery.Claim `cbor:"8,keyasint,omitzero"`
}

// Links counts what links have healed.
type Links struct {
	Lost    uint64 `cbor:"1,keyasint,omitempty" json:"lost"`    // ways to a peer that began anew
	Corrupt uint64 `cbor:"2,keyasint,omitempty" json:"corrupt"` // damaged frames
	Fenced  uint64 `cbor:"3,keyasint,omitempty" json:"fenced"`  // frames of lives that are over
}

// Add adds o to l.
func (l *Links) Add(o Links) {
	l.Lost, l.Corrupt, l.Fenced = l.Lost+o.Lost, l.Corrupt+o.Corrupt, l.Fenced+o.Fenced
}

// RankBeat is one rank in it.
type RankBeat struct {
	Rank     int    `cbor:"1,keyasint"`
	Step     uint32 `cbor:"2,keyasint"`           // that it is in
	Progress uint64 `cbor:"3,keyasint"`           // operations done in this life
	WaitsFor []int  `cbor:"4,keyasint,omitempty"` // ranks whose messages it misses
	Op       string `cbor:"5,keyasint,omitempty"` // what it is in: "mtp.2.forward tp all-reduce"
	WaitedNs int64  `cbor:"6,keyasint,omitempty"` // for so long, if it waits
	Done     bool   `cbor:"7,keyasint,omitempty"` // its programs have ended
	// ComputeNs is the time its last whole step took without waiting; 0: not known.
	ComputeNs int64 `cbor:"8,keyasint,omitempty"`
	// Recovered is said from the moment on at which a restarted rank is where it was, in every beat: beats may be lost.
	Recovered *Recovered `cbor:"9,keyasint,omitempty"`
	Log       *Log       `cbor:"10,keyasint,omitempty"` // the most that its log has held; nil: nothing
	Holds     bool       `cbor:"11,keyasint,omitempty"` // it waits at a boundary until the end of the run is agreed upon
}

// Log is the most bytes that the log of a rank has held at once, in this process, and the steps, from 0, that they were sent in.
type Log struct {
	Bytes int64  `cbor:"1,keyasint"`
	First uint32 `cbor:"2,keyasint"`
	Last  uint32 `cbor:"3,keyasint"`
}

// Recovered is what a restart came to. Restart and replay follow on Record.Split.
type Recovered struct {
	Cause     Cause  `cbor:"1,keyasint"`
	At        string `cbor:"2,keyasint,omitempty"` // where the life before was: "step 12 mb 3 mtp.2.forward"
	Replayed  uint64 `cbor:"3,keyasint"`           // messages that peers sent again
	Dropped   uint64 `cbor:"4,keyasint"`           // own messages that came twice
	RestartNs int64  `cbor:"5,keyasint"`           // record written → process ready
	ReplayNs  int64  `cbor:"6,keyasint"`           // ready → where it was
}

// Exit is the end of a process, seen by the agent of its host.
type Exit struct {
	Worker      int    `cbor:"1,keyasint"`
	Incarnation uint32 `cbor:"2,keyasint"`
	Host        string `cbor:"3,keyasint"`
	PID         int    `cbor:"4,keyasint"`
	Code        int    `cbor:"5,keyasint"`           // -1: a signal
	Signal      string `cbor:"6,keyasint,omitempty"` // its name
	AtNs        int64  `cbor:"7,keyasint"`           // since 1970
	Words       *Words `cbor:"8,keyasint,omitempty"` // its last ones
}

// Words are the last words of a process that knows why it ends.
type Words struct {
	Cause Cause  `cbor:"1,keyasint" json:"cause"`
	Site  string `cbor:"2,keyasint,omitempty" json:"site,omitempty"` // step and operation
	Text  string `cbor:"3,keyasint,omitempty" json:"text,omitempty"`
	// Final: it would fail again wherever it began, so the run ends with Code.
	Final bool `cbor:"4,keyasint,omitempty" json:"final,omitempty"`
	Code  int  `cbor:"5,keyasint,omitempty" json:"code,omitempty"`
}

// String is one line.
func (e Exit) String() string {
	how := "code " + strconv.Itoa(e.Code)
	if e.Signal != "" {
		how = "signal " + e.Signal
	}
	return fmt.Sprintf("exit worker=%d incarnation=%d pid=%d %s", e.Worker, e.Incarnation, e.PID, how)
}

// Pulse is the sign of life of a host's agent.
type Pulse struct {
	Host string `cbor:"1,keyasint"`
}

// Stop asks all workers to end: the run is over.
type Stop struct {
	Why string `cbor:"1,keyasint,omitempty"`
}

// End tells all workers where the run is to end.
func (p *Plane) End(e recovery.End) { p.say("end", e) }

// Beat tells a heartbeat. A failure is told by the silence of later ones.
func (p *Plane) Beat(b Beat) { p.say("hb."+strconv.Itoa(b.Worker), b) }

// Exit tells an exit.
func (p *Plane) Exit(e Exit) { p.say("exit."+strconv.Itoa(e.Worker), e) }

// Pulse tells that the agent of a host lives.
func (p *Plane) Pulse(host string) { p.say("agent", Pulse{host}) }

// Stop asks all workers to end.
func (p *Plane) Stop(why string) { p.say("stop", Stop{why}) }

// say publishes a message that may be lost.
func (p *Plane) say(subject string, v any) { _ = p.conn.Publish(p.subject(subject), encode(v)) }

// Beats calls f with every heartbeat that comes, one after the other, until stop.
func (p *Plane) Beats(f func(Beat)) (stop func(), err error) {
	return hear(p, "hb.*", "a heartbeat", f)
}

// Exits calls f with every exit.
func (p *Plane) Exits(f func(Exit)) (stop func(), err error) { return hear(p, "exit.*", "an exit", f) }

// Pulses calls f with every sign of life of an agent.
func (p *Plane) Pulses(f func(Pulse)) (stop func(), err error) {
	return hear(p, "agent", "a sign of life", f)
}

// Stops calls f when workers are asked to end.
func (p *Plane) Stops(f func(Stop)) (stop func(), err error) {
	return hear(p, "stop", "a request to stop", f)
}

// Ends calls f with every end that is told.
func (p *Plane) Ends(f func(recovery.End)) (stop func(), err error) {
	return hear(p, "end", "the end of a run", f)
}

// hear subscribes. What cannot be read is logged and no more.
func hear[T any](p *Plane, subject, what string, f func(T)) (stop func(), err error) {
	sub, err := p.conn.Subscribe(p.subject(subject), func(m *nats.Msg) {
		var v T
		if err := decode(what, m.Data, &v); err != nil {
			p.log.Warn(err.Error())
			return
		}
		f(v)
	})
	if err != nil {
		return nil, p.closed(err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
