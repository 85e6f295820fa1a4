package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/pflag"

	"github.com/chorus-comms/chorus/observe/endpoint"
)

// httpFlags say where what ranks do is served by HTTP.
type httpFlags struct {
	address string
	names   []string // that requests may have for it, besides those that are this host's
}

func (f *httpFlags) add(fs *pflag.FlagSet, what string) {
	fs.StringVar(&f.address, "http", "", what+
		" at this address: Prometheus' /metrics, and the ranks' profiles; a port alone is on the loopback")
	fs.StringSliceVar(&f.names, "http-name", nil,
		"another name by which clients of --http may know this host, such as that of a service or a proxy")
}

// listen listens at the address, which is on the loopback if it's just a port, and says so.
func (f *httpFlags) listen() (net.Listener, error) {
	host, port, err := net.SplitHostPort(f.address)
	if err != nil {
		return nil, usagef("--http: want HOST:PORT or :PORT, not %q", f.address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	f.names = append(f.names, host)
	fmt.Fprintf(os.Stderr, "chorus: what the ranks do is at http://%v/, for programs at /metrics and /ranks\n", l.Addr())
	return l, nil
}

// serve serves it there until ctx ends; dir is where the ranks record.
func (f *httpFlags) serve(ctx context.Context, l net.Listener, dir func() string) error {
	return endpoint.Serve(ctx, l, dir, f.names...)
}
