//go:build unix

package supervise

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// killGroup kills a process and its group.
func killGroup(p *os.Process) error {
	// The process itself first: unlike a number, its handle cannot mean another one. If it has been waited for, its number
	// may be somebody else's by now.
	if err := p.Kill(); err != nil {
		return err
	}
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) && !errors.Is(err, syscall.EPERM) {
		return err
	}
	return nil
}

// ending is how a process ended: its code, or -1 and the name of a signal.
func ending(s *os.ProcessState) (code int, signal string) {
	if s == nil {
		return -1, ""
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return -1, unix.SignalName(w.Signal())
	}
	return s.ExitCode(), ""
}
