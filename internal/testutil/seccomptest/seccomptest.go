// Package seccomptest runs programs to which the kernel refuses system calls, as the sandboxes of containers do. It is
// for tests:
//
//	cmd := exec.Command(os.Args[0], "-test.run=^TestX$")
//	cmd.Env = append(os.Environ(), seccomptest.Env("memfd_create=EPERM"))
//
// A binary that imports it looks at that variable before anything else: it installs the filter, which cannot be taken
// off again, and starts itself anew under it. On systems other than Linux it says that it can't, as "seccomptest: needs
// Linux", and ends.
package seccomptest

import (
	"fmt"
	"os"
	"strings"
)

const variable = "CHORUS_TEST_REFUSE"

// Env returns the environment variable that refuses calls, each given as NAME=ERRNO, to a program that imports this
// package.
func Env(calls ...string) string { return variable + "=" + strings.Join(calls, " ") }

// Calls returns the names that Env knows.
func Calls() []string {
	var names []string
	for _, c := range calls {
		names = append(names, c.name)
	}
	return names
}

func init() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	os.Unsetenv(variable)
	if err := refuse(strings.Fields(text)); err != nil {
		fmt.Fprintln(os.Stderr, "seccomptest:", err)
		os.Exit(70)
	}
}

type call struct {
	name    string
	number  int
	command uint32 // its second argument; 0: any
}
