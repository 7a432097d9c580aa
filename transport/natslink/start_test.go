package natslink

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// refused wants Start to fail within a moment, in one line with all the words.
func refused(t *testing.T, o Options, words ...string) {
	t.Helper()
	if o.Run == "" {
		o.Run = "test"
	}
	began := time.Now()
	n, err := Start(t.Context(), o)
	require.Nil(t, n)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
	require.Less(t, time.Since(began), patience)
}

func TestOptionsAreChecked(t *testing.T) {
	refused(t, Options{}, "found neither a URL nor Embedded")
	refused(t, Options{Embedded: true, Run: "a.b"}, `found run id "a.b"`)
	_, err := Start(t.Context(), Options{Embedded: true})
	require.ErrorContains(t, err, `found run id ""`)
	refused(t, Options{Embedded: true, Login: Login{Creds: "x"}}, "the embedded server knows no credentials")
	refused(t, Options{Embedded: true, PieceBytes: 10}, "found pieces of 10 bytes, expected 1024 to 4194304")
	refused(t, Options{Embedded: true, CreditBytes: 10}, "found credits of 10 bytes, expected at least 2304")
	refused(t, Options{Embedded: true, Ranks: -1}, "found -1 ranks")
	refused(t, Options{Embedded: true, URL: "http://x"}, "found http://x for the embedded server to listen at")
	refused(t, Options{URL: "nats://127.0.0.1:1", Login: Login{TLSCA: "/nowhere/ca.pem"}}, "the TLS CA file cannot be read", "/nowhere/ca.pem")
	junk := filepath.Join(t.TempDir(), "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	refused(t, Options{URL: "nats://127.0.0.1:1", Login: Login{TLSCert: junk}}, "expected both files or none")
	refused(t, Options{URL: "nats://127.0.0.1:1", Login: Login{Creds: os.Args[0]}}, "found a credentials file of", "expected at most 1048576")
	refused(t, Options{URL: "nats://127.0.0.1:1", Login: Login{Creds: "/nowhere/x.creds"}}, "the credentials file cannot be read")
	refused(t, Options{URL: "nats://127.0.0.1:1", Login: Login{NKey: junk}}, "has no usable seed")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Start(ctx, Options{Embedded: true, Run: "test"})
	require.ErrorIs(t, err, context.Canceled)
}

func TestUnreachableServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	l.Close()
	refused(t, Options{URL: "nats://me:secret@" + address}, "cannot connect to the NATS server at nats://"+address, "is the server running there")

	// A port that accepts and says nothing.
	l, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = Start(ctx, Options{URL: "nats://" + l.Addr().String(), Run: "test"})
	require.ErrorContains(t, err, "cannot connect to the NATS server at")
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	refused(t, Options{Embedded: true, URL: "nats://" + l.Addr().String()}, "the embedded server does not start", "address already in use")
}

func TestPassword(t *testing.T) {
	s := external(t, func(o *server.Options) { o.Username, o.Password = "me", "secret" })
	address := strings.TrimPrefix(s.ClientURL(), "nats://")
	refused(t, Options{URL: "nats://" + address}, "Authorization Violation", "look at the user in the URL")
	refused(t, Options{URL: "nats://" + address, Await: true}, "Authorization Violation") // nobody waits for another answer
	n := start(t, Options{URL: "nats://me:secret@" + address})
	in := open(t, n, 0)
	in.send(t, 0, 0, []byte("to myself"))
	require.Equal(t, "to myself", string(in.take(t).Payload))
}

// TestNKey makes a user key of NATS: base32 of a prefix, 32 bytes and a CRC-16.
func TestNKey(t *testing.T) {
	const seedType, userType = 18 << 3, 20 << 3
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	public := nkey(append([]byte{userType}, pub...))
	seed := nkey(append([]byte{seedType | userType>>5, userType & 31 << 3}, private.Seed()...))
	file := filepath.Join(t.TempDir(), "user.nk")
	require.NoError(t, os.WriteFile(file, []byte(seed), 0o600))

	s := external(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	refused(t, Options{URL: s.ClientURL()}, "look at the user in the URL, or the credentials or NKey file")
	n := start(t, Options{URL: s.ClientURL(), Login: Login{NKey: file}})
	in := open(t, n, 0)
	in.send(t, 0, 0, []byte("to myself"))
	require.Equal(t, "to myself", string(in.take(t).Payload))
}

func nkey(raw []byte) string {
	crc := uint16(0)
	for _, b := range raw {
		crc ^= uint16(b) << 8
		for range 8 {
			top := crc & 0x8000
			if crc <<= 1; top != 0 {
				crc ^= 0x1021
			}
		}
	}
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(binary.LittleEndian.AppendUint16(raw, crc))
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server")
	other, _ := certificate(t, dir, "other")
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	s := external(t, func(o *server.Options) { o.TLS, o.TLSConfig = true, &tls.Config{Certificates: []tls.Certificate{pair}} })
	address := strings.TrimPrefix(strings.TrimPrefix(s.ClientURL(), "tls://"), "nats://")
	refused(t, Options{URL: "tls://" + address, Login: Login{TLSCA: other}}, "look at the TLS files")
	n := start(t, Options{URL: "tls://" + address, Login: Login{TLSCA: cert, TLSCert: cert, TLSKey: key}})
	in := open(t, n, 0)
	in.send(t, 0, 0, payload(0, 1<<20))
	require.Len(t, in.take(t).Payload, 1<<20)
}

// certificate writes a self-signed certificate for this machine and its key.
func certificate(t *testing.T, dir, name string) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	require.NoError(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(file, kind string, b []byte) string {
		path := filepath.Join(dir, name+file)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	return write(".pem", "CERTIFICATE", der), write(".key", "PRIVATE KEY", raw)
}
