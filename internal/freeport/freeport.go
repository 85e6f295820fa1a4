// Package freeport finds a TCP port for a server that another process will open:
//
//	port, err := freeport.Find()
//	cmd := exec.Command(python, "serve.py", strconv.Itoa(port))
//
// A port that the kernel gave out and that was closed again may be given to the
// next program that asks, before the server has it. Find takes one that the kernel
// gives to nobody.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

// lowest is where Find begins: many a well-known service is below it.
const lowest = 10000

// Find returns a port that nobody listens on, below those that the kernel
// gives out by itself (Linux: ip(7), ip_local_port_range). It is safe for concurrent use.
func Find() (int, error) {
	var err error
	for range 100 {
		port := 0 // the kernel's choice, where all ports are its own
		if end := ephemeral(); end > lowest {
			port = lowest + rand.IntN(end-lowest)
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprint(":", port)); err == nil {
			defer l.Close()
			return l.Addr().(*net.TCPAddr).Port, nil
		}
	}
	return 0, fmt.Errorf("freeport: %w", err)
}

// ephemeral returns the first port that the kernel gives out by itself.
func ephemeral() int {
	first := 32768 // Linux' default; other systems begin higher
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		fmt.Sscan(string(text), &first)
	}
	return first
}
