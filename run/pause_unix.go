//go:build unix

package run

import "syscall"

// suspend stops a process and all of its threads.
func suspend(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }

// resume lets it go on.
func resume(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
