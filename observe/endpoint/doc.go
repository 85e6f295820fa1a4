// Package endpoint shows by HTTP what the ranks of this host do.
//
//	l, err := net.Listen("tcp", "127.0.0.1:9400")
//	err = endpoint.Serve(ctx, l, func() string { return dir })
//
// It asks the ranks whose flight records go to the directory, by their sockets there, so that nothing listens in the
// ranks themselves and one address serves all ranks of a host. `chorus run --http` and `chorus top --http` are made of
// it.
//
//	/                      a page that shows them as they happen
//	/metrics               in Prometheus' text format
//	/ranks                 what `chorus top` shows, as JSON
//	/live                  for the liveness probe of a pod: 503 if a rank doesn't answer, because it's stopped or stuck
//	/rank/N/pprof/PROFILE  a profile of rank N: heap, goroutine, allocs, block, mutex, threadcreate,
//	                       or profile?seconds=5 of its CPU
//
// There is no authentication: profiles tell much of a program. Listen on the loopback, or behind something that asks
// its clients. [Serve] answers only requests that name this host, by its address or its name: no page of the Web can
// have a browser ask.
package endpoint
