package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/chorus-comms/chorus/observe/endpoint"
)

// listenHTTP listens at an address, which is on the loopback if it's just a port, and says so.
func listenHTTP(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--http: want HOST:PORT or :PORT, not %q", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	fmt.Fprintf(os.Stderr, "chorus: what the ranks do is at http://%v/metrics and /ranks\n", l.Addr())
	return l, nil
}

// serveRanks shows what the ranks do whose records are in a directory, until ctx ends.
func serveRanks(ctx context.Context, l net.Listener, dir func() string) error {
	s := &http.Server{Handler: endpoint.Handler(dir), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
