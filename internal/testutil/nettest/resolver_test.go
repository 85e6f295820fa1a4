package nettest

import (
	"net/netip"
	"testing"
)

func TestResolver(t *testing.T) {
	asked := 0
	r := Resolver(func(name string) (netip.Addr, bool) {
		if name != "late.test" {
			return netip.Addr{}, false
		}
		asked++
		return netip.MustParseAddr("127.0.0.7"), asked > 1
	})
	if got, err := r.LookupHost(t.Context(), "late.test."); err == nil {
		t.Errorf("the first time: %v", got)
	}
	if got, err := r.LookupHost(t.Context(), "late.test."); err != nil || len(got) != 1 || got[0] != "127.0.0.7" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := r.LookupHost(t.Context(), "none.test."); err == nil {
		t.Errorf("another name: %v", got)
	}
}
