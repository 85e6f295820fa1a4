package freeport

import (
	"fmt"
	"net"
	"testing"
)

// TestFind: a port that Find returns can be listened on, and isn't one that the
// kernel may give to somebody else meanwhile.
func TestFind(t *testing.T) {
	for range 50 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		if first := ephemeral(); first > lowest && port >= first {
			t.Fatalf("port %d: the kernel gives out those from %d on", port, first)
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
