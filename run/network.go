package run

import (
	"context"

	"github.com/cespare/xxhash/v2"

	"phalanx/config"
	"phalanx/transport"
	"phalanx/transport/direct"
	"phalanx/transport/natslink"
)

// network starts the transport of a run. All ranks live in this process, so colocated: direct takes every edge.
func (j *job) network(ctx context.Context) (transport.Network, error) {
	t := j.s.Transport
	if t.Kind == "direct" || t.Colocated == "direct" || j.s.Sizes().World() == 1 {
		return direct.New(), nil
	}
	url := t.URL
	if j.o.NATS != "" {
		url = j.o.NATS
	}
	return natslink.Start(ctx, natslink.Options{URL: url, Embedded: url == "", PieceBytes: t.PieceBytes,
		Run: runName(&j.s), Logger: j.o.Logger})
}

// runName names a run on a shared server. Two runs of one scenario at once on one server need two names.
func runName(s *config.Scenario) string { return s.Name }

func runID(s *config.Scenario) uint64 { return xxhash.Sum64String(runName(s)) }

// buildID changes whenever two processes could compute different bits: source, architecture, or scenario.
func buildID(s *config.Scenario) uint64 {
	h := xxhash.New()
	h.WriteString(BuildVersion())
	h.Write(s.Normalised())
	return h.Sum64()
}
