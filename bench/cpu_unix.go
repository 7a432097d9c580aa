//go:build unix

package bench

import (
	"syscall"
	"time"
)

// cpuTime is the processor time this process has used; 0 where the system does not say.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
