package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Injected is a failure on purpose: of a rank (at), of the messages of a link (during and link) or of a NATS server
// (server and at.step). It happens once in all lives of a rank, but for slow with during and faults of links.
type Injected struct {
	At     Passage `yaml:"at"`
	During Window  `yaml:"during"`
	Link   Between `yaml:"link"`
	Server string  `yaml:"server"` // nats-1, nats-2, …
	Action string  `yaml:"action"` // panic | kill | hang | slow | exit | enospc | eio | pause
	Ms     float64 `yaml:"ms"`     // how long slow and pause take

	// Of a link's messages: shares, but for Delay and Partition, which are milliseconds.
	Drop      float64 `yaml:"drop"`
	Duplicate float64 `yaml:"duplicate"`
	Reorder   float64 `yaml:"reorder"`
	Corrupt   float64 `yaml:"corrupt"`
	Delay     float64 `yaml:"delay"`     // each message waits up to so long
	Partition float64 `yaml:"partition"` // nothing passes for so long after the first message of the window
	Seed      uint64  `yaml:"seed"`      // default: rng.seed
}

// Passage is the Count-th time that a rank, in all of its lives, comes by a point; with Step and Microbatch, the Count-th
// time there.
type Passage struct {
	Rank       *int   `yaml:"rank"`
	Hook       string `yaml:"hook"`
	Step       *int   `yaml:"step"` // as printed, from 1
	Microbatch *int   `yaml:"microbatch"`
	Count      int    `yaml:"count"`
}

// Window is some steps.
type Window struct {
	Steps *[2]int `yaml:"steps"` // first and last, as printed
}

// Has reports whether a step, as printed, is in the window. One without steps is the whole run.
func (w Window) Has(step int) bool { return w.Steps == nil || w.Steps[0] <= step && step <= w.Steps[1] }

// Between is the messages of one rank to another; nil is every rank.
type Between struct {
	From *int `yaml:"from"`
	To   *int `yaml:"to"`
}

// OfRank reports whether a rank fails.
func (f *Injected) OfRank() bool { return f.At.Hook != "" || f.At.Rank != nil }

// OfServer reports whether a NATS server fails.
func (f *Injected) OfServer() bool { return f.Server != "" }

// OfLink reports whether messages suffer.
func (f *Injected) OfLink() bool {
	return f.Link != Between{} || f.Drop+f.Duplicate+f.Reorder+f.Corrupt+f.Delay+f.Partition > 0
}

// Hooks are the points in a rank at which it may fail. Beside them there are those of its program: Point.
const (
	BeforeSend     = "before-send"
	AfterSend      = "after-send"
	BeforeApply    = "before-apply"
	GradReduce     = "grad-reduce"
	MidOptimizer   = "mid-optimizer"
	BeforeSnapshot = "before-snapshot"
	MidSnapshot    = "mid-snapshot"
	AfterSnapshot  = "after-snapshot"
	BeforeCommit   = "before-commit"
	AfterRestart   = "after-restart"
)

// hookNames are the hooks that are one word.
var hookNames = []string{BeforeSend, AfterSend, BeforeApply, GradReduce, MidOptimizer, BeforeSnapshot, MidSnapshot, AfterSnapshot, BeforeCommit, AfterRestart}

// Point is a layer's or depth's forward or backward pass, as layer.1.forward and mtp.2.backward.
type Point struct {
	MTP      bool
	Index    int // layers from 0, depths from 1
	Backward bool
}

// ParsePoint reads a hook as a Point; false if it is none.
func ParsePoint(hook string) (p Point, ok bool) {
	parts := strings.Split(hook, ".")
	if len(parts) != 3 || parts[0] != "layer" && parts[0] != "mtp" || parts[2] != "forward" && parts[2] != "backward" {
		return p, false
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil || n < 0 || strconv.Itoa(n) != parts[1] {
		return p, false
	}
	return Point{MTP: parts[0] == "mtp", Index: n, Backward: parts[2] == "backward"}, true
}

// String is the point as a hook.
func (p Point) String() string {
	part, pass := "layer", "forward"
	if p.MTP {
		part = "mtp"
	}
	if p.Backward {
		pass = "backward"
	}
	return fmt.Sprintf("%s.%d.%s", part, p.Index, pass)
}

// hasMicrobatch reports whether a hook is passed within a microbatch.
func hasMicrobatch(hook string) bool {
	_, point := ParsePoint(hook)
	return point || hook == BeforeSend || hook == AfterSend || hook == BeforeApply
}

// ofSnapshots reports whether a hook is passed only by ranks that keep snapshots.
func ofSnapshots(hook string) bool {
	return strings.HasSuffix(hook, "-snapshot") || hook == BeforeCommit || hook == AfterRestart
}
