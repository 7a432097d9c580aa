package run

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/cespare/xxhash/v2"

	"phalanx/config"
	"phalanx/messages"
	"phalanx/transport"
	"phalanx/transport/direct"
	"phalanx/transport/natslink"
)

// network starts the transport of a run. All ranks live in this process, so colocated: direct takes every edge.
func (j *job) network(ctx context.Context) (transport.Network, error) {
	t := j.s.Transport
	if t.Kind == "direct" || t.Colocated == "direct" || j.s.Sizes().World() == 1 {
		return direct.New(transport.Identity{Run: messages.RunHash(runName(&j.s)), Build: buildID(&j.s)}), nil
	}
	url := t.URL
	if j.o.NATS != "" {
		url = j.o.NATS
	}
	o := natslink.Options{URL: url, Embedded: t.UsesEmbedded() && j.o.NATS == "" || url == "", PieceBytes: t.PieceBytes,
		Login: j.login(),
		Run:   runName(&j.s), Build: buildID(&j.s), Ranks: j.s.Sizes().World(), Logger: j.o.Logger}
	if !o.Embedded { // runs of one scenario may share a server
		o.Run = fmt.Sprintf("%s-%d", o.Run, os.Getpid())
	}
	return natslink.Start(ctx, o)
}

// login is the files that the scenario names for a server of somebody else's.
func (j *job) login() natslink.Login {
	t := j.s.Transport
	return natslink.Login{Creds: j.credential(t.Creds), NKey: j.credential(t.NKey),
		TLSCA: j.credential(t.TLSCA), TLSCert: j.credential(t.TLSCert), TLSKey: j.credential(t.TLSKey)}
}

// credential is a file that the scenario names; "" is none.
func (j *job) credential(path string) string {
	if path == "" {
		return ""
	}
	return located(&j.s, path)
}

// runName is the scenario's name in the letters that a subject may have.
func runName(s *config.Scenario) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s.Name)
	if name == "" {
		return "run"
	}
	return name
}

// buildID changes whenever two processes could compute different bits: source, architecture, or scenario.
func buildID(s *config.Scenario) uint64 {
	h := xxhash.New()
	h.WriteString(BuildVersion())
	h.Write(s.Normalised())
	return h.Sum64()
}
