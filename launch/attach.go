package launch

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Attach makes the job that of a command: signals that this process gets are the job's from now on, apart from those
// that it ignores, as nohup has it, and the ranks' output and the launcher's messages go to stdout and stderr. When
// nobody reads one of these any more, the job gets SIGPIPE; a socket whose other end has gone costs it nothing.
func (j *Job) Attach(stdout, stderr io.Writer) {
	signals := make(chan os.Signal, 64)
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	j.Signals = signals
	j.Stdout, j.Stderr = stdout, stderr
	if signal.Ignored(syscall.SIGPIPE) {
		return
	}
	// Whoever asks for SIGPIPE gets that of all descriptors, sockets among them, and whoever doesn't ends by that of
	// standard output. So it's asked for, nobody listens, and writing tells whose it is.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	j.Stdout, j.Stderr = &readByOthers{stdout, signals}, &readByOthers{stderr, signals}
}

// readByOthers is output that is of no use to a job when nobody reads it.
type readByOthers struct {
	w       io.Writer
	signals chan<- os.Signal
}

// Write implements io.Writer.
func (r *readByOthers) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case r.signals <- syscall.SIGPIPE:
		default: // it has enough of them
		}
	}
	return n, err
}
