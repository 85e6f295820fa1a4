package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/chorus-comms/chorus/launch"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit status.
func run(args []string) int {
	root := newRootCmd()
	root.SetArgs(args)
	err := root.Execute()
	// What ended a job has been explained where it happened.
	if f := (*launch.Failure)(nil); err != nil && !errors.As(err, &f) && !errors.Is(err, errReported) {
		fmt.Fprintln(os.Stderr, "chorus:", err)
	}
	return launch.ExitCode(err)
}

// errReported ends a command that has already printed what is wrong.
var errReported = errors.New("already reported")
