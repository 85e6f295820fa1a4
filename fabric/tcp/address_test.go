package tcp

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

// TestPortsAreTaken demands an error of a rank that finds none of its ports free: its peers would not look for it at
// another.
func TestPortsAreTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	o := defaults()
	if err := o.table().Set("tcp", map[string]string{"ports": port}); err != nil {
		t.Fatal(err)
	}
	all, err := listen(o, "127.0.0.1")
	for _, l := range all {
		t.Errorf("listens at %v", l.Addr())
		l.Close()
	}
	if want := "all ports from " + port + " to " + port + " are taken"; err == nil || !strings.Contains(err.Error(),
		want) {
		t.Errorf("the error is %v; want %q", err, want)
	}
}
