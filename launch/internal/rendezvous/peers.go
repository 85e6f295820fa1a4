package rendezvous

import (
	"context"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/observe"
)

// Start is how an attempt begins.
type Start struct {
	Attempt  int      // its number
	Restarts int      // attempts that have failed, of those that count
	World    []Member // the nodes that take part
	Node     int      // this one's place among them
	Addr     string   // of the attempt's own store
	Port     int
	News     []string // what the user should know about the nodes
}

// Peers is what a launcher knows of the launchers on other nodes, and shares with them.
type Peers interface {
	// Begin agrees on the start of an attempt, of this number or a higher one, whose store is fresh. The error is a
	// *Failure if the attempt has failed on another node meanwhile; then Stopped follows, as after any failure. It's an
	// *EndedError if the job has ended without this node. With an error the start may be nil.
	Begin(ctx context.Context, attempt int) (*Start, error)
	// Again reports whether Begin follows after the failure of an attempt. For an elastic job that's so also if the job
	// may end: Begin says how.
	Again(s *Start, f *process.Failure) bool
	// News delivers at most one event for each attempt: the first failure there was, or nil when all ranks of all nodes
	// have finished well.
	News() <-chan *process.Failure
	// Finished says that the ranks of this node have finished well.
	Finished(attempt int)
	// Failed publishes a failure and returns the first one of the attempt.
	Failed(f *process.Failure) *process.Failure
	// Stopped says that the ranks of this node are dead, after a failure, and what they have recorded. It returns what the
	// records of all nodes' ranks tell of it, unless it was an interruption, or not even a start; and whether they could
	// be had.
	Stopped(attempt int, f *process.Failure, records []*observe.Dump) (told string, ok bool)
	// Close leaves the job.
	Close()
}
