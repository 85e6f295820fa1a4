// Package links is a network of offload engines over the links of a fabric: engines of several processes and hosts, or
// of one.
//
//	net := links.New(fab)                    // whose ranks are the engines' sessions
//	e := engine.New(engine.Config{Session: uint32(fab.Rank()), Network: net, Lost: lost})
//	net.Serve(e, lost)
//	defer net.Close(ctx)
//
// A goroutine for each peer receives an engine's packets at once. Data that goes straight into another engine's memory
// is received there, without a copy in between. network.go does that. With Share, engines of one host map each other's
// memory, for copies to windows: host.go does that.
//
// Invariants: a send is done when its data has left the engine's memory; no send waits for a call; nothing that a peer
// sends makes this rank write where its engine has no memory.
package links
