// Command compare measures Chorus beside what else people use on one host, in one run,
// and says which of its targets it reaches.
//
//	go run ./cmd/internal/bench/compare                         # make compare: install, measure all, report
//	go run ./cmd/internal/bench/compare --only all_reduce --max 4MiB
//	go run ./cmd/internal/bench/compare --only refill --add     # another slice into the same report
//	go run ./cmd/internal/bench/compare --install-only --peers ompi4,impi
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
// --limit bounds the whole run, installing included. The time that is left is divided among the sizes of all measures
// in proportion to the time of a round of each. A size gets at least two rounds, and more while its time lasts. After
// the first and the second round, entrants far behind the fastest are dropped. From 64 MiB on only the faster form of
// each series is measured, and only series that had a chance at the next smaller size. At the end the harness looks
// where the cores are, and measures cells that lack bursts in that placement, as long as there's time.
//
// Each library is measured in place and out of place where it has both forms; the faster counts.
// The envelope is, for each size, the best median of all peers' settings. Ours is measured by
// package bench, through the public API.
//
// Invariants: every burst of a peer is checked on known values before and after it's timed, and a burst with wrong
// results is reported, not counted. A peer that can't be installed is left out with its reason. A target without any
// peer to compare with is skipped, not passed.
package main
