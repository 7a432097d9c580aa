package natslink

import (
	"context"
	"net"
	"net/url"
	"time"
)

// speakTimeout is how long a server may take to greet.
const speakTimeout = 2 * time.Second

// Speaks says whether a server greets whoever connects to a URL. One that is stopped, or hangs, does not.
func Speaks(ctx context.Context, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, speakTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetReadDeadline(deadline)
	}
	greeting := make([]byte, 4)
	n, err := c.Read(greeting)
	return err == nil && n > 0
}
