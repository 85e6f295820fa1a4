// Package links is a network of offload engines over the links of a fabric: engines of several processes and hosts, or
// of one.
//
//	net := links.New(fab)                    // whose ranks are the engines' sessions
//	e := engine.New(engine.Config{Session: uint32(fab.Rank()), Network: net, Lost: lost})
//	net.Serve(e, lost)
//	defer net.Close(ctx)
//
// What one engine sends is received at once, by a goroutine for each peer; data that goes straight into another
// engine's memory is received there, without a copy in between. network.go is that. host.go, for those who Share, is
// memory of engines of the same host that each maps where it lies: what windows are copied to.
//
// Invariants: a send is done when its data has left the engine's memory; no send waits for a call; nothing that a peer
// sends makes this rank write where its engine has no memory.
package links
