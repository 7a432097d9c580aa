//go:build !unix

package bench

import "time"

// cpuTime is the processor time this process has used; 0 where the system does not say.
func cpuTime() time.Duration { return 0 }
