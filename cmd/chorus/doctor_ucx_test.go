package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/config"
)

// TestBetweenHosts has the doctor say which fabric leads to other hosts, and why.
func TestBetweenHosts(t *testing.T) {
	lacking := errors.New("there's no RDMA device")
	for _, x := range []struct {
		set         string
		lacks       error
		asked, fast bool
		want, why   string
	}{
		{"", lacking, false, false, "tcp", "no RDMA device"},
		{"", nil, false, false, "ucx", "all hosts must have one"},
		{"", nil, true, true, "ucx", "all hosts must have one"},
		{"", nil, true, false, "tcp", "no transport that is faster"},
		{"CHORUS_TLS=true", nil, true, true, "tcp", "CHORUS_TLS"},
		{"CHORUS_FABRIC_FAR=tcp", nil, true, true, "tcp", "CHORUS_FABRIC_FAR"},
		{"CHORUS_FABRIC_FAR=ucx", lacking, false, false, "ucx", "CHORUS_FABRIC_FAR"},
		{"CHORUS_FABRIC=shm", nil, true, true, "shm", "CHORUS_FABRIC names"},
	} {
		name, value, _ := strings.Cut(x.set, "=")
		cfg, err := config.Load(func(n string) (string, bool) { return value, name != "" && n == name })
		if err != nil {
			t.Fatal(err)
		}
		if got, why := betweenHosts(cfg, x.lacks, x.asked, x.fast); got != x.want || !strings.Contains(why, x.why) {
			t.Errorf("%+v: %s, because %s", x, got, why)
		}
	}
}
