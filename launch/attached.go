package launch

import (
	"io"

	"github.com/chorus-comms/chorus/launch/internal/process"
)

// Attach connects the job to the command that runs it. Signals that this process gets go to the job from now on, apart
// from those that it ignores, such as SIGHUP under nohup. One that ends the job counts once if it comes again within a
// second, as that of timeout(1) does. The ranks' output and the launcher's messages go to stdout
// and stderr. When the reader of one of these is gone, the job gets SIGPIPE; a socket whose other end is gone doesn't
// affect it.
func (j *Job) Attach(stdout, stderr io.Writer) {
	j.Signals, j.Stdout, j.Stderr = process.Attach(stdout, stderr)
}

// Guard is the main function of the guard, a small process beside the launcher with [Job.Guard]'s standard input. When
// that ends, because the launcher is gone, Guard kills what the ranks have started and left.
func Guard(r io.Reader) error { return process.RunGuard(r) }
