package rendezvous

import (
	"net"
	"testing"
)

func TestLocalAddresses(t *testing.T) {
	type answer struct {
		bind  string
		local bool
	}
	tests := map[string]answer{
		"localhost": {"127.0.0.1", true}, "127.0.0.1": {"127.0.0.1", true}, "127.3.2.1": {"127.3.2.1", true}, "::1": {"::1",
			true},
		"192.0.2.255": {"", false}, "name.invalid": {"", false},
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			tests[n.IP.String()] = answer{n.IP.String(), true}
		}
	}
	for host, want := range tests {
		if bind, local, _ := LocalAddr(t.Context(), host); (answer{bind, local}) != want {
			t.Errorf("%s: %q %v, want %v", host, bind, local, want)
		}
	}
}
