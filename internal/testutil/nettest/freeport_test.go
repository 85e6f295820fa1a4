package nettest

import (
	"fmt"
	"net"
	"testing"
)

// TestFreePorts: ports that are found can be listened on, and aren't those that the kernel may give to another process
// meanwhile.
func TestFreePorts(t *testing.T) {
	for i := range 50 {
		n := 1 + i%4
		first, err := FreePorts(n)
		if err != nil {
			t.Fatal(err)
		}
		for port := first; port < first+n; port++ {
			if own := ephemeral(); own > lowestPort && port >= own {
				t.Fatalf("port %d: the kernel gives out those from %d on", port, own)
			}
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
	}
}
