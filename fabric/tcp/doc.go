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
// Who writes: the goroutine that posts a small message, as far as the socket takes
// it without blocking, and one goroutine per connection for everything else. A
// goroutine that reads never blocks on writing, so two ranks that both send
// can't hold each other up.
//
// Invariants: nothing from the wire is used before it was checked, and a
// connection that doesn't know the job's token has no effect; announcements of one
// rank to another are matched in the order in which they were posted; a link that
// breaks, or is silent for three heartbeats, fails every message that waits for it.
package tcp
