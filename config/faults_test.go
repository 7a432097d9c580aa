package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNeedsProcs: keys that need ranks in processes are legal, and known with their places.
func TestNeedsProcs(t *testing.T) {
	s := parsed(t, edited(t, "  micro_batch_size: 2\n", `  micro_batch_size: 2
transport: {servers: 3}
recovery: {snapshot_every: 1, supervisors: 3, recording: true, log_bytes: 1000}
faults:
  - {at: {rank: 0, hook: before-send}, action: kill}
  - {at: {rank: 0, hook: mid-snapshot}, action: enospc}
  - {at: {rank: 0, hook: after-snapshot}, action: hang}
  - {at: {rank: 0, hook: after-snapshot}, action: panic}
  - {server: nats-2, at: {step: 2}, action: pause, ms: 300}
  - {drop: 0.1}
`))
	var got []string
	for _, p := range s.NeedsProcs {
		got = append(got, p.String())
	}
	const need = " needs ranks in processes of their own (run --procs N): "
	require.Equal(t, []string{
		"f.yaml:14:13: transport.servers:" + need + "one server inside the process cannot outlive it",
		"f.yaml:15:31: recovery.supervisors:" + need + "in one process the supervisor dies with the ranks",
		"f.yaml:15:64: recovery.log_bytes:" + need + "logs of ranks that share one process have no budget",
		"f.yaml:17:40: faults.0.action:" + need + "kill ends a process, and in one process that is the whole run; use panic",
		"f.yaml:18:20: faults.1.at.hook:" + need + "snapshots are on a disk only there",
		"f.yaml:18:41: faults.1.action:" + need + "snapshots are on a disk only there",
		"f.yaml:19:43: faults.2.action:" + need + "a rank that hangs is killed with its process, and in one process that is the whole run",
		"f.yaml:21:6: faults.4.server:" + need + "the servers of run --procs are what fails",
		"f.yaml:22:5: faults.5:" + need + "within one process nothing asks again for what is lost",
	}, got)
	require.Empty(t, parsed(t, goodFile).NeedsProcs)
}

// TestNormalisedFaults: rank 0 and microbatch 0 are not nothing, and what is read again is the same.
func TestNormalisedFaults(t *testing.T) {
	text := edited(t, "  micro_batch_size: 2\n", `  micro_batch_size: 2
recovery: {snapshot_every: 1}
faults:
  - {at: {rank: 0, hook: before-send}, action: panic}
  - {server: nats-1, at: {step: 2}, action: pause, ms: 300}
`)
	s := parsed(t, text)
	normal := string(s.Normalised())
	require.Contains(t, normal, "faults: [{at: {rank: 0, hook: \"before-send\", count: 1}, action: panic}, {at: {step: 2}, server: \"nats-1\", action: pause, ms: 300}]\n")
	again := parsed(t, normal)
	require.Equal(t, s.Faults, again.Faults)
}

// TestPoints: what ParsePoint reads, String writes.
func TestPoints(t *testing.T) {
	for _, hook := range []string{"layer.0.forward", "layer.11.backward", "mtp.2.forward"} {
		p, ok := ParsePoint(hook)
		require.True(t, ok, hook)
		require.Equal(t, hook, p.String())
	}
	for _, hook := range []string{"", "layer.0", "layer.-1.forward", "layer.00.forward", "layer.+1.forward", "head.1.forward", "mtp.1.forwards", "layer.1.forward.x", "layer.99999999999999999999.forward"} {
		_, ok := ParsePoint(hook)
		require.False(t, ok, hook)
	}
}
