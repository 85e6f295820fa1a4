package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Kind says what sort of failure ended an attempt.
type Kind string

const (
	Exited      Kind = "exited"      // a rank exited with a status other than 0
	Signaled    Kind = "signaled"    // a rank was killed by a signal that the launcher did not send
	NotStarted  Kind = "not started" // a rank's program could not be started
	Interrupted Kind = "interrupted" // a launcher was told to stop
	NodeLost    Kind = "node lost"   // a launcher died, or cannot be reached
	NodeCame    Kind = "node came"   // a launcher has come that an elastic job takes in
)

// Failure is the first thing that went wrong in an attempt. It is the same on all nodes, whichever it happened on.
type Failure struct {
	Kind    Kind
	Attempt int // 0 is the first

	Node int    // GROUP_RANK of the node where it happened
	Host string // its name

	// The failed rank; meaningful for Exited, Signaled and NotStarted.
	Rank, LocalRank int
	Pid             int           // NodeCame: of the launcher
	ExitStatus      int           // Exited
	CoreDumped      bool          // Signaled
	After           time.Duration // since the rank was started
	Stderr          []string      // the last lines that it wrote to standard error
	Message         string        // from the error file, if the rank left one

	Signal syscall.Signal // Signaled, Interrupted
	Reason string         // NotStarted, NodeLost
	Told   bool           // NodeLost: what has started the launchers has explained it
}

// Error describes the failure in one line.
func (f *Failure) Error() string {
	who := fmt.Sprintf("rank %d (local rank %d, pid %d on %s)", f.Rank, f.LocalRank, f.Pid, f.Host)
	switch f.Kind {
	case Exited:
		return fmt.Sprintf("%s exited with status %d, %s after its start", who, f.ExitStatus, Seconds(f.After))
	case Signaled:
		note := ""
		switch {
		case f.CoreDumped:
			note = " (core dumped)"
		case f.Signal == syscall.SIGKILL:
			note = " (by hand, or by the kernel for want of memory)"
		}
		return fmt.Sprintf("%s was killed by %s%s, %s after its start", who, signalName(f.Signal), note, Seconds(f.After))
	case NotStarted:
		return fmt.Sprintf("rank %d (local rank %d on %s) could not be started: %s", f.Rank, f.LocalRank, f.Host, f.Reason)
	case Interrupted:
		return fmt.Sprintf("the launcher of node %d (%s) received %s", f.Node, f.Host, signalName(f.Signal))
	case NodeCame:
		return fmt.Sprintf("another node has come (%s, pid %d)", f.Host, f.Pid)
	default:
		return fmt.Sprintf("node %d (%s) is lost: %s", f.Node, f.Host, f.Reason)
	}
}

// Code is the exit status that stands for the failure: the rank's own, or 128 and the signal, as shells count.
func (f *Failure) Code() int {
	switch f.Kind {
	case Exited:
		return f.ExitStatus
	case Signaled, Interrupted:
		return 128 + int(f.Signal)
	case NotStarted:
		return CodeNotStarted
	default:
		return 1
	}
}

// Restartable says whether another attempt may help.
func (f *Failure) Restartable() bool { return f.Kind == Exited || f.Kind == Signaled }

// Exit codes of shells for a program that cannot be started, and for one that is not there.
const (
	CodeNotStarted = 126
	CodeNotFound   = 127
)

// signalName is a signal as SIGTERM.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// Seconds shows a time as finely as it matters.
func Seconds(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// ErrorFileVariable names the file in which a rank may leave what failed.
const ErrorFileVariable = "TORCHELASTIC_ERROR_FILE"

// ReadErrorFile returns the message that a rank left in its error file in torchelastic's format, or "". There the
// message is a text, or an object with the text and a Python call stack.
func ReadErrorFile(path string) string {
	data, err := sys.ReadRegular(path, 1<<20)
	if err != nil {
		return ""
	}
	return parseErrorFile(data)
}

func parseErrorFile(data []byte) string {
	var outer struct {
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(data, &outer) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(outer.Message, &text) != nil {
		var inner struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(outer.Message, &inner) != nil {
			return ""
		}
		text = inner.Message
	}
	return strings.TrimSpace(text)
}

// StopsBy returns the signal by which ranks of other nodes are stopped: that of the launcher which was told to stop, as
// Ctrl-C interrupts the ranks of all hosts, or SIGTERM.
func (f *Failure) StopsBy() syscall.Signal {
	if f.Kind == Interrupted && f.Signal != 0 && f.Signal != syscall.SIGPIPE {
		return f.Signal
	}
	return syscall.SIGTERM
}

// ErrArgument is what errors of Run wrap that are about the fields of Job.
var ErrArgument = errors.New("bad argument")

type argumentError struct{ text string }

func (e *argumentError) Error() string        { return "launch: " + e.text }
func (e *argumentError) Is(target error) bool { return target == ErrArgument }

// BadArgument is an error about the fields of a job, or of what starts its launchers.
func BadArgument(format string, args ...any) error {
	return &argumentError{fmt.Sprintf(format, args...)}
}

// Explainable reports whether what the ranks did may have to do with the failure.
func (f *Failure) Explainable() bool {
	return f.Kind != Interrupted && f.Kind != NotStarted && f.Kind != NodeCame
}
