package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/cmd/internal/chaos"
)

// A campaign that ends early, for whatever reason, prints what it has, and says that it's not all.
func TestChaosEndsEarly(t *testing.T) {
	for _, found := range []int{0, 1} {
		var out bytes.Buffer
		cmd := newChaosCmd()
		cmd.SetOut(&out)
		res := &chaos.Result{Rounds: 3, Hangs: found, By: []*chaos.Row{{Fault: chaos.Kill, Fabric: "mem", Rounds: 3,
			Hangs: found}}}
		err := (&chaosFlags{}).report(cmd, res, 10, errors.New("enough"))
		if err == nil || !strings.Contains(err.Error(), "3 of 10 rounds were run: enough") || !strings.Contains(out.String(),
			"kill") {
			t.Errorf("%v; printed:\n%s", err, out.String())
		}
	}
}
