package process

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/chorus-comms/chorus/internal/sys"
)

// Attach connects what starts ranks to the command that runs it, as launch.Job.Attach says.
func Attach(stdout, stderr io.Writer) (signals chan os.Signal, out, errs io.Writer) {
	signals = make(chan os.Signal, 64)
	heeded := func(all ...os.Signal) []os.Signal { return slices.DeleteFunc(all, signal.Ignored) }
	if ends := heeded(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT); len(ends) > 0 {
		sys.Notify(signals, ends...)
	}
	if others := heeded(syscall.SIGUSR1, syscall.SIGUSR2); len(others) > 0 {
		signal.Notify(signals, others...)
	}
	if signal.Ignored(syscall.SIGPIPE) {
		return signals, stdout, stderr
	}
	// A process that asks for SIGPIPE gets it for all descriptors, sockets among them; one that doesn't is ended by
	// that of standard output. So this asks for it and ignores the signal; the error of the write tells which
	// descriptor it was.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals, &pipedOutput{stdout, signals}, &pipedOutput{stderr, signals}
}

// pipedOutput is output whose reader may go away, which ends the job by SIGPIPE.
type pipedOutput struct {
	w       io.Writer
	signals chan<- os.Signal
}

// Write implements io.Writer.
func (r *pipedOutput) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case r.signals <- syscall.SIGPIPE:
		default: // it has enough of them
		}
	}
	return n, err
}
