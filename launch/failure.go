package launch

import (
	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/launch/internal/rendezvous"
)

// Failure is the first thing that went wrong in an attempt. It is the same on all nodes, whichever it happened on.
type Failure = process.Failure

// Kind says what sort of failure ended an attempt.
type Kind = process.Kind

// The kinds of failures.
const (
	Exited      = process.Exited      // a rank exited with a status other than 0
	Signaled    = process.Signaled    // a rank was killed by a signal that the launcher did not send
	NotStarted  = process.NotStarted  // a rank's program could not be started
	Interrupted = process.Interrupted // a launcher was told to stop
	NodeLost    = process.NodeLost    // a launcher died, or cannot be reached
	NodeCame    = process.NodeCame    // a launcher has come that an elastic job takes in
)

// OutputError says that output of the ranks, or a message about them, could not be written, and to what.
type OutputError = process.OutputError

// ErrArgument is what errors of Run wrap that are about the fields of Job.
var ErrArgument = process.ErrArgument

// AnyNodeRank asks for a node rank by order of arrival.
const AnyNodeRank = rendezvous.AnyNodeRank
