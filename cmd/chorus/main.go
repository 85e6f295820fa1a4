package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/chorus-comms/chorus/internal/plain"
	"github.com/chorus-comms/chorus/launch"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes one command line and returns the exit status.
func run(args []string) int {
	out := &stdout{file: os.Stdout}
	root := newRootCmd()
	root.SetArgs(spellOut(root, args))
	root.SetOut(out)
	root.SetErr(os.Stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		err = out.lost()
	}
	var bad *usageError
	switch f := (*launch.Failure)(nil); {
	case err == nil, errors.As(err, &f), errors.Is(err, errReported):
		// The error that ended a job has been explained where it happened.
	case errors.As(err, &bad), errors.Is(err, launch.ErrArgument):
		fmt.Fprintf(os.Stderr, "chorus: %s\nchorus: run `%s --help`\n", plain.Text(err.Error()), cmd.CommandPath())
		return codeUsage
	default:
		fmt.Fprintln(os.Stderr, "chorus:", plain.Text(strings.TrimPrefix(err.Error(), "chorus: ")))
	}
	return launch.ExitCode(err)
}

// errReported ends a command that has already printed what is wrong.
var errReported = errors.New("already reported")
