// Package natslink is the network of ranks that meet at a NATS server, embedded in this process or external. It is
// the only importer of NATS.
//
// # Pieces
//
// A message crosses in pieces (256 KiB by default: measured faster than 64 KiB and 1 MiB), each a NATS message of an
// encoded header and its part of the payload. The header is part of the body: NATS headers would save the sender one
// copy but measured 10 % slower. Pieces from one rank to another carry a dense number, Header.Edge. NATS keeps their
// order or loses them, so a number that is not the next one is a loss, and the edge fails.
//
// # Windows
//
// Two windows, both of Options.CreditBytes unless the server's max_pending asks for less, bound what is on the way:
//
//   - The transit window of an edge (source, destination) counts pieces until the receiving link has them. It keeps
//     what a server holds for one connection below half of its max_pending, and is given back without asking anyone.
//   - The window of a channel of an edge counts pieces until the owner calls Consumed. It bounds what a receiver
//     must keep. It is per channel since the program behind one channel may have to wait for a message on another;
//     one window for all of them would deadlock.
//
// A message may be larger than its window: while no complete message of its channel waits for the owner, pieces of an
// incomplete one are given back as they arrive. So a receiver keeps at most one window and one message per
// (source, channel), and whenever a channel of a sender stands still, either something is on the way or the owner of
// the other end has a complete message to take. For that a piece is at most half a window, and credit is told at the
// latest when it adds up to a quarter of one.
//
// # Nothing is lost in silence
//
// Credits are totals since the beginning, so a later one heals a lost one. A sender that has nothing to send but
// misses an answer probes: a Hello with its next piece number, in order behind its pieces. The receiver compares the
// number with what it has (a gap is a loss) and answers with all totals. Losses, damage, foreign messages, dropped
// pieces, a server that stays away for Options.Outage and a rank that stays silent for three times as long are
// reported through Handler.Fail.
//
// # Healing
//
// A link whose Handler has Lost fails for none of these. The edge begins anew: its number has the epoch in its upper
// half, the sender moves on to the next one, throws away what waits and is on the way, and says so with a probe; both
// ends call Lost. A receiver that misses something takes nothing more and asks for a new epoch until it comes. What is
// lost is the owner's to send again: package recovery keeps it anyway. See renew.go for the machine, heal.go for the
// link around it.
package natslink
