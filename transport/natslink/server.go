package natslink

import (
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"
)

const (
	serverStartTimeout = 30 * time.Second
	serverWriteLimit   = 30 * time.Second // a loaded client reads late; it is not slow by our windows
)

// startServer runs a NATS server in this process. It listens only when the options have a URL.
func startServer(o *Options) (*server.Server, error) {
	so := serverLimits(o.Ranks, o.PieceBytes, o.CreditBytes)
	so.ServerName, so.DontListen, so.NoSystemAccount = "phalanx-"+o.Run, true, true
	if o.URL != "" {
		host, port, err := listenAddress(o.URL)
		if err != nil {
			return nil, err
		}
		so.DontListen, so.Host, so.Port = false, host, port
	}
	return runServer(so, o.Logger)
}

// runServer starts a server and waits until it is ready.
func runServer(so *server.Options, logger *zap.Logger) (*server.Server, error) {
	s, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("natslink: the embedded server does not start: %w", err)
	}
	log := &serverLog{log: logger.Named("nats-server"), fatal: make(chan string, 1)}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	if err := log.await(s); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	return s, nil
}

// await returns when the server is ready or has said why it never will be.
func (g *serverLog) await(s *server.Server) error {
	for deadline := time.Now().Add(serverStartTimeout); ; {
		ready := s.ReadyForConnections(50 * time.Millisecond)
		select {
		case why := <-g.fatal:
			return fmt.Errorf("natslink: the embedded server does not start: %s", why)
		default:
		}
		if ready {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("natslink: the embedded server was not ready after %v", serverStartTimeout)
		}
	}
}

func listenAddress(address string) (host string, port int, err error) {
	bad := func() (string, int, error) {
		return "", 0, fmt.Errorf("natslink: found %s for the embedded server to listen at, expected nats://host:port", redact(address))
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "nats" || u.Hostname() == "" || u.User != nil {
		return bad()
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil || port < 0 || port > 0xffff {
		return bad()
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return u.Hostname(), port, nil
}

// serverLog is the embedded server's logger: warnings and errors reach the run's log, the rest is of no interest.
type serverLog struct {
	log   *zap.Logger
	once  sync.Once
	fatal chan string
}

func (g *serverLog) Noticef(string, ...any)    {}
func (g *serverLog) Debugf(string, ...any)     {}
func (g *serverLog) Tracef(string, ...any)     {}
func (g *serverLog) Warnf(f string, a ...any)  { g.log.Warn(fmt.Sprintf(f, a...)) }
func (g *serverLog) Errorf(f string, a ...any) { g.log.Error(fmt.Sprintf(f, a...)) }

// Fatalf keeps the reason; a library must not end the process, as the server's own logger would.
func (g *serverLog) Fatalf(f string, a ...any) {
	g.once.Do(func() { g.fatal <- fmt.Sprintf(f, a...) })
}
