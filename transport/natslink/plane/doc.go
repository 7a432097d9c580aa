// Package plane is the control plane of a run of several processes: small facts that must survive deaths of ranks, of
// supervisors and of NATS servers. No tensor passes here, and it has a connection of its own, so that a heartbeat never
// waits behind one.
//
// # Facts
//
// Facts lie in a JetStream key-value bucket T<run>_STATE, with as many replicas as there are servers:
//
//	rank.<w>             Record: which incarnation of worker w lives, and why the one before died
//	verdict              Verdict: the run has ended, and why
//
// What a rank has saved, and which step all can go back to, is no fact here: ranks tell each other over their links.
//
// Every write names the revision that it replaces, so of two writers one is refused (ErrConflict). That, and nothing
// else, keeps two supervisors from starting two lives of one worker. Reads are answered by the leader of the bucket,
// not by the nearest replica.
//
// A write whose answer is lost is made again with the same bytes. If it is then refused, what lies there decides: the same
// bytes are our own, since a record names its writer.
//
// Bucket T<run>_LEASE has one key, whose owner leads the supervisors as long as it renews it. Nothing depends on there being
// one leader only. Stream T<run>_EVT keeps one Restart for each restart.
//
// # Messages
//
// Heartbeats (t.<run>.hb.<w>), exits that an agent has seen (t.<run>.exit.<w>), signs of life of agents, where the run is to end
// (t.<run>.end) and the request to stop are core messages: they may be lost, so whoever sends them sends them again. Whoever watches a key is told of
// a change by a core message as well, and looks for itself from time to time: an ordered consumer would die with its server.
//
// # Patience
//
// Every call repeats itself until it succeeds, until the answer is a real refusal, or until its context ends. An election
// after the loss of a server takes several seconds, and no caller is a better place to wait. Bodies are CBOR in its
// deterministic form, read strictly.
package plane
