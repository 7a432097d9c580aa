//go:build unix

package run

import (
	"os"
	"syscall"
)

// hold takes a file, or fails if somebody has it. The kernel gives it back when the process ends, however it does.
func hold(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
