// Command compare measures Chorus beside what else people use on one host, in one run,
// and says which of its targets it reaches.
//
//	go run ./internal/bench/compare                         # make compare: install, measure all, report
//	go run ./internal/bench/compare --only all_reduce --max 4MiB
//	go run ./internal/bench/compare --only refill --add     # another slice into the same report
//	go run ./internal/bench/compare --install-only --peers ompi4,impi
//
// # How it measures
//
// Every library is started once for each of its settings, as long-lived ranks that sleep in
// a read until they are told to run a burst of rounds (drivers/worker.h). Bursts take
// turns: all libraries run a burst of one size, then all run the next burst of it, and so on, so that
// what the machine does meanwhile happens to all of them. Ranks of others are stopped while they don't
// measure, so that no thread of theirs spins beside another's burst; ours only sleep.
//
// Before and after each burst the harness sends a cache line between the two cores (package bench's
// Probe). A burst counts only if both probes say the same placement; medians are taken over the
// bursts of one placement, and compared only within it.
//
// # How long it takes
//
// --limit bounds the whole, installing included. What is left of it is divided among the sizes of all measures by what
// a round of each takes: a size has two rounds at least, and more while its time lasts. After the first and the second
// round those who are far behind the fastest leave; from 64 MiB only the faster form of each series is measured, of
// those who had a chance at the size before. In the end the harness looks where the cores are, and measures what lacks
// bursts in that placement, as long as there's time.
//
// Each library is measured in place and out of place where it has both forms; the faster counts.
// The envelope is, for each size, the best median of all peers' settings. Ours is measured by
// package bench, through the public API.
//
// Invariants: every burst of a peer is checked on known values before and after it's timed, and one
// that computed something wrong is not counted but reported; a peer that can't be had is left
// out with its reason, and a target without any peer to compare with is skipped, not passed.
package main
