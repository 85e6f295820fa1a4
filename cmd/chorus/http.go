package main

import (
	"fmt"
	"net"
	"os"
)

// listenHTTP listens at an address, which is on the loopback if it's just a port, and says so.
func listenHTTP(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("--http: want HOST:PORT or :PORT, not %q", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	fmt.Fprintf(os.Stderr, "chorus: what the ranks do is at http://%v/, for programs at /metrics and /ranks\n", l.Addr())
	return l, nil
}
