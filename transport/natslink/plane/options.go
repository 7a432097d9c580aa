package plane

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"phalanx/transport/natslink"
)

const (
	leaseTTLDefault = 15 * time.Second // an election of JetStream takes 4 to 9 s, and nobody can renew meanwhile
	leaseTTLMin     = time.Second
	replicasMax     = 5 // of JetStream
)

// Options says where the servers are.
type Options struct {
	Run string // run id; part of subjects: letters, digits, '-' and '_'
	URL string // of NATS servers with JetStream, separated by commas

	natslink.Login // of a user and of TLS

	Replicas int           // of buckets and streams: the number of servers, 1 or 3; default 1
	LeaseTTL time.Duration // of the leader's lease; default 15 s
	Name     string        // of this process, for the server's list of connections
	Logger   *zap.Logger

	patience time.Duration // with a refusal while servers may be starting; default refusalPatience
}

func (o Options) complete() (Options, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = leaseTTLDefault
	}
	if o.patience == 0 {
		o.patience = refusalPatience
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	bad := strings.IndexFunc(o.Run, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
	switch {
	case o.Run == "" || bad >= 0:
		return o, fmt.Errorf("plane: found run id %q, expected letters, digits, '-' and '_'", o.Run)
	case o.URL == "":
		return o, fmt.Errorf("plane: found no URL: give the address of a NATS server with JetStream")
	case o.Replicas < 1 || o.Replicas > replicasMax || o.Replicas%2 == 0:
		return o, fmt.Errorf("plane: found %d replicas, expected 1 or 3", o.Replicas)
	case o.LeaseTTL < leaseTTLMin:
		return o, fmt.Errorf("plane: found a lease of %v, expected at least %v: it must outlast an answer of the server", o.LeaseTTL, leaseTTLMin)
	}
	return o, nil
}
