package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/chorus-comms/chorus/launch"
)

// A job of three ranks of one program, here the shell. Its output is shown by whole lines.
func ExampleJob_Run() {
	job := &launch.Job{
		Command:      []string{"sh", "-c", "echo rank $RANK of $WORLD_SIZE"},
		RanksPerNode: 3,
		Console:      []int{2}, // only this one's; nil: all
		Stdout:       os.Stdout,
		Stderr:       os.Stderr,
	}
	if err := job.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: [2]: rank 2 of 3
}

// The first failure ends the job. ExitCode is what a launcher ends with then.
func ExampleExitCode() {
	job := &launch.Job{Command: []string{"sh", "-c", "test $RANK = 0 && exec sleep 60; exit 3"}, RanksPerNode: 2}
	err := job.Run(context.Background())
	failure := (*launch.Failure)(nil)
	if errors.As(err, &failure) {
		fmt.Println("rank", failure.Rank, failure.Kind, failure.ExitStatus, launch.ExitCode(err))
	}
	// Output: rank 1 exited 3 3
}
