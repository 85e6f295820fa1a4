// Package transport is what fabrics are made of: what every one of them needs and none does in a way of its own.
//
//   - [Matcher] pairs posted receives with the messages that have come, each in order, and knows which peers are gone.
//   - [Base], embedded in a fabric, has the methods that only ask the Matcher, and what a rank sends to itself.
//   - [Register] makes a fabric of two steps: an [Endpoint] says what the others must know of this rank, and is joined
//     with theirs. Ranks tell each other what has failed by then, so that no rank waits for one that can't come.
//   - [Extend] gives a fabric the abilities that it lacks.
//
// A fabric that uses all of it only moves bytes:
//
//	func init() { transport.Register("wire", listen, func() fabric.Options { return new(options).table() }) }
//
//	type Fabric struct {
//		transport.Base // Rank, Size, Recv, Handle, Announce, ...
//		links []*link
//	}
//
// Endpoints of two fabrics can be joined with one Matcher, as package hybrid does: a receive from any source then takes
// what comes first over either.
//
// Invariants: an Arrival is fetched once, without locks held; posting, matching and completing allocate nothing in a
// steady state.
package transport
