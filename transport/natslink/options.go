package natslink

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"phalanx/messages"
	"phalanx/transport"
)

const (
	pieceBytesDefault  = 256 << 10
	pieceBytesMin      = 1 << 10  // below it, headers cost more than a tenth
	pieceBytesMax      = 4 << 20  // a NATS server warns about a max_payload above 8 MiB, and we ask for twice a piece
	creditBytesDefault = 16 << 20 // 64 pieces: far more than a round trip holds, far less than a step
	payloadBytesMin    = 4 << 10  // a server that takes less than a page is misconfigured
	maxPendingDefault  = 64 << 20 // of a NATS server; it does not announce the value
	fanInAssumed       = 63       // for an embedded server's max_pending when Options.Ranks is not set
	outageDefault      = 10 * time.Second
	tickDefault        = 500 * time.Millisecond
	outageHealing      = 2 * time.Second        // what waits longer is cheaper to ask for again
	tickHealing        = 100 * time.Millisecond // a loss that nothing follows is found after two of them
	silenceOutages     = 3                      // a rank may be stopped or starved longer than a server may be away
	chunksMax          = 0xffff
	secretBytesMax     = 1 << 20 // keys and certificates are small; NATS searches a file for them slowly
)

// Options says which server to use and how. One of URL and Embedded is needed, and Run.
type Options struct {
	// URL of an external server (or several, separated by commas). With Embedded it is where the embedded server
	// listens as well, for ranks of other processes: "nats://127.0.0.1:4222"; port 0 takes a free one.
	URL      string
	Embedded bool // a server in this process, reached without sockets

	Await bool // tries to reach the server until the context of Start ends

	Login // of an external server's user and of TLS

	Run                   string // run id; part of subjects: letters, digits, '-' and '_'
	Build                 uint64 // of transport.Identity, as are the next two
	Topology, Incarnation uint32

	// Ranks is the number of ranks of the whole run. It may be 0 when all of them are opened in this process. The
	// windows shrink with it, so all processes must say the same.
	Ranks       int
	PieceBytes  int // largest payload of one piece; default 256 KiB
	CreditBytes int // window of a channel of an edge; default 16 MiB
	MaxPending  int // max_pending of an external server; default 64 MiB, as is the server's
	// Outage is how long a server may be away before Fail; default 10 s. Of a healing link it is how long a server or a
	// rank may be away before what waits for it is thrown away; default 2 s.
	Outage time.Duration

	Logger *zap.Logger

	Wire transport.Wire // harms what is sent, for tests; nil: nothing does

	tick   time.Duration               // between looks at outages and unanswered pieces
	tamper func(frame []byte) [][]byte // tests: what becomes of a received piece
}

// complete checks the options and fills in defaults.
func (o Options) complete() (Options, error) {
	setDefault(&o.PieceBytes, pieceBytesDefault)
	setDefault(&o.CreditBytes, creditBytesDefault)
	setDefault(&o.MaxPending, maxPendingDefault)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.URL == "" && !o.Embedded {
		return o, fmt.Errorf("natslink: found neither a URL nor Embedded: give the address of a NATS server, or ask for an embedded one")
	}
	if o.Embedded && (o.Creds != "" || o.NKey != "" || o.TLSCA != "" || o.TLSCert != "" || o.TLSKey != "") {
		return o, fmt.Errorf("natslink: the embedded server knows no credentials and no TLS: leave them out, or use an external server")
	}
	if err := checkRun(o.Run); err != nil {
		return o, err
	}
	if err := o.checkSizes(); err != nil {
		return o, err
	}
	return o, o.checkFiles()
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// checkRun refuses a run id that is no single token of a NATS subject.
func checkRun(run string) error {
	bad := strings.IndexFunc(run, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	})
	if run == "" || bad >= 0 {
		return fmt.Errorf("natslink: found run id %q, expected letters, digits, '-' and '_'", run)
	}
	return nil
}

func (o *Options) checkSizes() error {
	if o.PieceBytes < pieceBytesMin || o.PieceBytes > pieceBytesMax {
		return fmt.Errorf("natslink: found pieces of %d bytes, expected %d to %d", o.PieceBytes, pieceBytesMin, pieceBytesMax)
	}
	if least := 2 * (pieceBytesMin + messages.HeaderSize); o.CreditBytes < least {
		return fmt.Errorf("natslink: found credits of %d bytes, expected at least %d", o.CreditBytes, least)
	}
	if o.Ranks < 0 || o.Ranks > 0x10000 {
		return fmt.Errorf("natslink: found %d ranks, expected at most 65536", o.Ranks)
	}
	return nil
}

// checkFiles finds a missing file now, by its name, and not as a refusal of the server later.
func (o *Options) checkFiles() error {
	for _, f := range []struct{ what, path string }{
		{"credentials", o.Creds}, {"NKey", o.NKey}, {"TLS CA", o.TLSCA}, {"TLS certificate", o.TLSCert}, {"TLS key", o.TLSKey},
	} {
		if f.path == "" {
			continue
		}
		r, err := os.Open(f.path)
		if err != nil {
			return fmt.Errorf("natslink: the %s file cannot be read: %w", f.what, err)
		}
		info, err := r.Stat()
		r.Close()
		if err == nil && info.Size() > secretBytesMax {
			return fmt.Errorf("natslink: found a %s file of %d bytes, expected at most %d: %s is something else", f.what, info.Size(), secretBytesMax, f.path)
		}
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return fmt.Errorf("natslink: found certificate %q and key %q, expected both files or none", o.TLSCert, o.TLSKey)
	}
	return nil
}

func (o *Options) identity() transport.Identity {
	return transport.Identity{Run: messages.RunHash(o.Run), Topology: o.Topology, Build: o.Build, Incarnation: o.Incarnation}
}

// limits are the sizes that hold for a number of ranks and a server.
type limits struct {
	piece   int    // largest payload of one piece
	edge    uint64 // transit window of an edge
	channel uint64 // window of a channel of an edge
	pending int    // most bytes that may wait for one rank, at a server or in its client
}

// limitsFor shrinks windows until all edges into one rank fit into half of max_pending, and pieces until two of them
// fit into a window and one into max_payload, header included.
func (o *Options) limitsFor(ranks int, maxPayload, maxPending int64) (limits, error) {
	fan := uint64(max(1, ranks-1))
	l := limits{channel: uint64(o.CreditBytes)}
	l.edge = min(l.channel, uint64(maxPending)/2/fan)
	room := min(uint64(maxPayload), l.edge/2)
	if room < messages.HeaderSize+pieceBytesMin {
		return l, fmt.Errorf("natslink: %d ranks at a server with max_payload %d and max_pending %d leave %d bytes for a piece and its header, expected at least %d: raise the server's limits",
			ranks, maxPayload, maxPending, room, messages.HeaderSize+pieceBytesMin)
	}
	l.piece = int(min(uint64(o.PieceBytes), room-messages.HeaderSize)) &^ 63
	l.pending = int(2 * l.edge * fan)
	return l, nil
}

// chunksFor is the number of pieces of a payload.
func (l *limits) chunksFor(bytes int) (int, error) {
	most := min(chunksMax*l.piece, 0xffffffff)
	if bytes > most {
		return 0, fmt.Errorf("%w: found %d bytes, expected at most %d (%d pieces of %d)", transport.ErrTooLarge, bytes, most, chunksMax, l.piece)
	}
	return max(1, (bytes+l.piece-1)/l.piece), nil
}
