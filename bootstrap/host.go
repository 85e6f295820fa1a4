package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// hostIDVar overrides HostID, so that tests can pretend to have several hosts.
const hostIDVar = "CHORUS_HOST_ID"

// HostID identifies the machine as far as shared memory goes: two processes with
// equal ids can reach each other's abstract sockets and see each other's process
// ids, so that they can share memory. It is made of the kernel's boot id and the
// network and process-id namespaces; two containers with namespaces of their own
// therefore differ, although they share a kernel. CHORUS_HOST_ID overrides it.
// An error says that this process has no descriptors left to read it with.
func HostID() (string, error) {
	if id := os.Getenv(hostIDVar); id != "" {
		return id, nil
	}
	id, err := bootID()
	if err != nil {
		return "", fmt.Errorf("bootstrap: the host's id: %w", err)
	}
	if id == "" {
		id, _ = os.Hostname()
	}
	for _, ns := range namespaces {
		link, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil { // a sandbox without namespaces in /proc: go by name
			link, _ = os.Hostname()
		}
		id += "/" + link
	}
	return id, nil
}

// namespaces are those of the kernel that processes must share to share memory, and to know each other by number.
var namespaces = []string{"net", "pid"}

// kernelID is HostID by what the kernel says alone; an error if it doesn't.
func kernelID() (string, error) {
	id, err := bootID()
	if err == nil && id == "" {
		err = errors.ErrUnsupported
	}
	for _, ns := range namespaces {
		if err == nil {
			var link string
			link, err = os.Readlink("/proc/self/ns/" + ns)
			id += "/" + link
		}
	}
	return id, err
}

// LocalAddrFor returns the address of this host from which packets to host would
// leave, which is the one to tell to others who know host, too. It sends nothing.
func LocalAddrFor(host string) (net.IP, error) {
	// Connecting a datagram socket only makes the kernel look up the route; the
	// port, that of the discard service, does not matter.
	c, err := net.Dial("udp", net.JoinHostPort(strings.Trim(host, "[]"), "9"))
	if err != nil {
		return nil, fmt.Errorf("bootstrap: no route to %s: %w", host, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP, nil
}
