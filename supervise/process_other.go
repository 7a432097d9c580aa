//go:build !unix

package supervise

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) error { return p.Kill() }

// ending is how a process ended; there are no signals.
func ending(s *os.ProcessState) (code int, signal string) {
	if s == nil {
		return -1, ""
	}
	return s.ExitCode(), ""
}
