package natslink

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// Login is who a process is to NATS servers: files of a user and of TLS; "" is none. The links and the control plane have it.
type Login struct {
	Creds, NKey            string
	TLSCA, TLSCert, TLSKey string
}

// Options are the connection's. The error names the file that has no usable seed.
func (f Login) Options() (opts []nats.Option, err error) {
	if f.TLSCA != "" {
		opts = append(opts, nats.RootCAs(f.TLSCA))
	}
	if f.TLSCert != "" {
		opts = append(opts, nats.ClientCert(f.TLSCert, f.TLSKey))
	}
	if f.Creds != "" {
		opts = append(opts, nats.UserCredentials(f.Creds))
	}
	if f.NKey != "" {
		nkey, err := nats.NkeyOptionFromSeed(f.NKey)
		if err != nil {
			return nil, fmt.Errorf("the NKey file %s has no usable seed: %w", f.NKey, err)
		}
		opts = append(opts, nkey)
	}
	return opts, nil
}
