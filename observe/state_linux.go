package observe

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/chorus-comms/chorus/observe/record"
	"golang.org/x/sys/unix"
)

// stateOf returns the state of the process that listens at a socket, if it's stopped; else nothing.
func stateOf(path string) (state string) {
	record.WithShortPath(path, func(short string) error {
		c, err := net.Dial("unix", short)
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			return err
		}
		return raw.Control(func(fd uintptr) {
			peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) // the listener
			if err != nil {
				return
			}
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", peer.Pid))
			if i := strings.LastIndexByte(string(stat), ')'); i >= 0 && len(stat) > i+2 && strings.IndexByte("Tt",
				stat[i+2]) >= 0 {
				state = stopped
			}
		})
	})
	return state
}
