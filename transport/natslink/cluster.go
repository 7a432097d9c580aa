package natslink

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"

	"phalanx/messages"
)

const (
	routePing     = 2 * time.Second // between servers; a stopped one is left after some of them
	routePingsMax = 3
	storeBytesMax = 1 << 30 // JetStream holds leases, records and an audit: kilobytes
	memoryMax     = 64 << 20
)

// ServerOptions say which server to run: one, or one of a cluster.
type ServerOptions struct {
	Name string // of the server; unique in its cluster
	URL  string // where clients reach it, "nats://127.0.0.1:4222"; port 0 takes a free one
	// StoreDir is the folder of JetStream's files: its own for each server, and the same again after a restart.
	StoreDir string

	// Cluster is the name of the cluster, or "" for a single server. ClusterURL is where the other servers reach this
	// one, Routes where it reaches them; its own address among them does no harm.
	Cluster, ClusterURL string
	Routes              []string

	// What the run has, as in Options: they set how much may wait for one client.
	Ranks, PieceBytes, CreditBytes int

	Logger *zap.Logger
}

// Server is a NATS server in this process, with JetStream. Every write of JetStream is synced to disk before it is
// acknowledged.
type Server struct {
	s *server.Server
}

// StartServer returns when clients can connect. The servers of a cluster wait for each other only where they must:
// JetStream's records need a majority of them.
func StartServer(o ServerOptions) (*Server, error) {
	if o.Name == "" || o.StoreDir == "" {
		return nil, fmt.Errorf("natslink: found server name %q and store %q, expected both: JetStream knows a server by its name and its files", o.Name, o.StoreDir)
	}
	if (o.Cluster == "") != (o.ClusterURL == "") || (o.Cluster == "") != (len(o.Routes) == 0) {
		return nil, fmt.Errorf("natslink: found cluster %q, address %q and %d routes, expected all of them or none", o.Cluster, o.ClusterURL, len(o.Routes))
	}
	setDefault(&o.PieceBytes, pieceBytesDefault)
	setDefault(&o.CreditBytes, creditBytesDefault)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	so := serverLimits(o.Ranks, o.PieceBytes, o.CreditBytes)
	so.ServerName = o.Name
	so.JetStream, so.StoreDir, so.SyncAlways = true, o.StoreDir, true
	so.JetStreamMaxStore, so.JetStreamMaxMemory = storeBytesMax, memoryMax
	var err error
	if so.Host, so.Port, err = listenAddress(o.URL); err != nil {
		return nil, err
	}
	if err := o.join(so); err != nil {
		return nil, err
	}
	s, err := runServer(so, o.Logger)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// join makes the server one of a cluster. Clients keep to the addresses that they were given.
func (o *ServerOptions) join(so *server.Options) (err error) {
	if o.Cluster == "" {
		return nil
	}
	c := &so.Cluster
	c.Name, c.NoAdvertise, c.PingInterval, c.MaxPingsOut = o.Cluster, true, routePing, routePingsMax
	if c.Host, c.Port, err = listenAddress(o.ClusterURL); err != nil {
		return err
	}
	for _, r := range o.Routes {
		host, port, err := listenAddress(r)
		if err != nil {
			return err
		}
		so.Routes = append(so.Routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort(host, strconv.Itoa(port))})
	}
	return nil
}

// URL is where clients reach the server.
func (s *Server) URL() string { return s.s.ClientURL() }

// Close ends the server and returns when it is gone. Its files stay.
func (s *Server) Close() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// ServerMaxPending is the max_pending of the servers of a run, for Options.MaxPending: a server does not tell its
// clients. ranks and creditBytes are those of ServerOptions; 0 is the default.
func ServerMaxPending(ranks, creditBytes int) int {
	setDefault(&creditBytes, creditBytesDefault)
	return 2 * creditBytes * max(ranks-1, fanInAssumed)
}

// serverLimits are the sizes of a server: one piece and its header are half of what it takes as one message, and what
// all ranks may have on the way to one of them is half of what it keeps for a client.
func serverLimits(ranks, pieceBytes, creditBytes int) *server.Options {
	return &server.Options{
		NoSigs:        true,
		MaxPayload:    int32(max(1<<20, 2*(pieceBytes+messages.HeaderSize))),
		MaxPending:    int64(ServerMaxPending(ranks, creditBytes)),
		WriteDeadline: serverWriteLimit,
	}
}

// FreeAddresses are addresses of this host that nobody listens at, for servers that must know each other's before they
// start.
func FreeAddresses(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("natslink: looking for a free port: %w", err)
		}
		defer l.Close() // when all are known: no two are the same
		out = append(out, "nats://"+l.Addr().String())
	}
	return out, nil
}
