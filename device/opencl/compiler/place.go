package compiler

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/chorus-comms/chorus/config"
)

// host is the command of [Apart].
var host atomic.Pointer[[]string]

// Apart has another process compile sources from now on: that of the command, whose program imports package opencl and
// so does nothing else. If the process can't be started, or can't use the device, this one compiles. It's for a
// host that knows such a command, as Python does. CHORUS_OPENCL_COMPILER goes before it.
func Apart(command ...string) {
	command = slices.Clone(command)
	host.Store(&command)
}

// Place is where sources are compiled: by which command, and whether the user named it, so that this process may not do
// without.
type Place struct {
	Command []string // none: here
	Named   bool
}

// Where is the place that was chosen.
func Where() (Place, error) {
	c, err := config.Load(nil)
	if err != nil {
		return Place{}, err
	}
	switch command := strings.Fields(c.OpenCLCompiler); {
	case len(command) == 0:
		if h := host.Load(); h != nil {
			return Place{Command: *h}, nil
		}
		return Place{}, nil
	case command[0] == "none":
		return Place{}, nil
	case command[0] == "self":
		command[0], err = os.Executable()
		return Place{command, true}, err
	default:
		return Place{command, true}, nil
	}
}
