// Package supervise keeps the workers of a run of several processes alive.
//
// Machine is the judgement: a pure machine that is told of heartbeats, exits and records, and wishes for records. Supervisor is
// its shell with clock, lease and control plane; any number of them may run. Agent runs on each host, is the parent
// of its workers, and makes the processes what the records say. Waiting and Pace are what a user wants to know when a run
// stands still or crawls.
package supervise
