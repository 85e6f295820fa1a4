package endpoint_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/chorus-comms/chorus/observe/endpoint"
)

// A program that starts ranks itself exports their metrics to Prometheus. The directory is their CHORUS_DUMP_DIR; no
// rank records in this example.
func ExampleServe() {
	dir, err := os.MkdirTemp("", "dumps")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error)
	go func() { served <- endpoint.Serve(ctx, l, func() string { return dir }) }()

	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(resp.Status, strings.Contains(string(text), "# TYPE chorus_"), err)
	stop()
	fmt.Println(<-served)
	// Output:
	// 200 OK true <nil>
	// <nil>
}
