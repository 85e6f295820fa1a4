// Package rendezvous is where the launchers of a job's nodes meet. They share who takes part, the store of each attempt,
// its first failure, and who is alive. [Join] is of nodes that stay the same, [JoinElastic] of nodes that come and go.
package rendezvous
