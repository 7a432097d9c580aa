//go:build !unix

package run

import "errors"

func suspend(int) error { return errors.New("this system cannot stop a process for some time") }

func resume(int) error { return nil }
