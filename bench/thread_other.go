//go:build !linux

package bench

import "time"

// threadTime is the processor time that the calling thread has used; 0 where the system does not say.
func threadTime() time.Duration { return 0 }
