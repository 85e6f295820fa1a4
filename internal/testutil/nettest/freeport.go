package nettest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// lowestPort is where FreePorts begins: many a well-known service is below it.
const lowestPort = 10000

// FreePort returns a port that no process listens on, for a server that another process will open:
//
//	port, err := nettest.FreePort()
//	cmd := exec.Command(python, "serve.py", strconv.Itoa(port))
//
// A port that the kernel gave out and that was closed again may be given to the next program that asks, before the
// server has it. So the port is one that the kernel gives to no program: it's below those that it gives out by itself
// (Linux: ip(7), ip_local_port_range). FreePort is safe for concurrent use.
func FreePort() (int, error) { return FreePorts(1) }

// FreePorts returns the first of n such ports, one after the other.
func FreePorts(n int) (int, error) {
	var err error
	for range 100 {
		first := 0 // the kernel's choice, where all ports are its own
		if end := ephemeral(); end-n > lowestPort {
			first = lowestPort + rand.IntN(end-n-lowestPort)
		}
		if first, err = free(first, n); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// free returns the first of n ports, which the kernel chooses if it's 0, if all are free.
func free(first, n int) (int, error) {
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprint(":", first+i))
		if err != nil {
			return 0, err
		}
		defer l.Close()
		if i == 0 {
			first = l.Addr().(*net.TCPAddr).Port
		}
	}
	return first, nil
}

// ephemeral returns the first port that the kernel gives out by itself.
func ephemeral() int {
	first := 32768 // Linux' default; other systems begin higher
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		fmt.Sscan(string(text), &first)
	}
	return first
}
