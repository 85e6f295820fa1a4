// Package tcp is a fabric over TCP, for ranks on any hosts.
//
//	f, err := fabric.Open(ctx, "tcp", fabric.Config{Rank: r, Size: n, Exchange: exchange})
//
// Two ranks connect when the first message between them is posted. One
// connection carries announcements, small messages and control payloads; further
// ones (option "connections") share the bytes of large messages. A message takes
// one of three ways:
//
//   - eager: the bytes follow the announcement at once, on the same connection;
//   - push: the bytes are sent at once, in chunks over the data connections;
//   - ask: the bytes wait until the receiver, having matched the announcement with
//     a posted receive, grants them.
//
// Eager and pushed bytes count against the window that the receiver has opened, so
// what a rank must buffer for a peer is bounded; beyond it every message asks.
// Bytes are written from the sender's buffer with vectored writes, and read straight
// into the receiver's if its receive was posted by the time they come.
//
// There are three ways in which bytes move. A goroutine that waits for a message reads and writes
// the sockets itself, as long as data comes or is likely to. A goroutine that posts a message
// writes what the socket takes. A poller moves the rest when no goroutine waits. None of them ever
// blocks on a socket, so two ranks that both send can't block each other. The sockets aren't in the
// runtime's poller: it would wake a thread for every segment that arrives, even while a goroutine
// reads the socket anyway.
//
// Within a host the two directions of a pair's chunks take different connections: a rank that reads
// a socket holds its lock just when the other rank writes to it. Congestion control that paces,
// such as BBR, is replaced there.
//
// Invariants: Nothing from the wire is used before it was checked. A connection that doesn't prove
// that it knows the key of the links has no effect. Announcements of one rank to another are matched
// in the order in which they were posted. A link that breaks, or is silent for longer than a
// heartbeat, fails every message that waits for it.
package tcp
