// Package engine is a device in software: streams, events, graphs, copies, kernels and their tracing over memory that a
// driver describes. Drivers whose devices are emulated embed an [Engine] and add memory:
//
//	e := engine.New("accinte", space, engine.Device{Units: 2, Levels: 2}, engine.Device{Units: 2, Levels: 2})
//	type Driver struct { *engine.Engine; ... } // gains driver.Streams, driver.Events, driver.Graphs, ...
//
// # How it works
//
//   - A [stream] is a list of tasks. A goroutine runs it while there are any, and ends when there are none: an idle
//     stream costs nothing and leaks nothing.
//   - A [point] is the moment in a stream's order that an event was recorded at. An event stands for its last point;
//     waiting for an event means waiting for the point it stood for at the time of the call.
//   - Copies, fills and kernels run on one of the device's units; a request from a stream of higher priority gets the
//     next one. Host functions take none, since they may block.
//   - A task holds the allocations it uses from the call until it has run (acquire), so freeing memory under it
//     releases the memory behind it.
//   - A stream whose work failed skips what follows, passes the error on with its points, and keeps it until recovered.
//
// Lock order: a graph's lock, that of the captures, an event's, a device's, a stream's, the space's, the trace's. No
// code waits for work while holding one.
package engine
