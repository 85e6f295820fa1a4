package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
	"github.com/chorus-comms/chorus/secure"
)

// TestACableIsPulled between two hosts: the launchers on both say that the other is lost, and since when, end their
// ranks, and return.
func TestACableIsPulled(t *testing.T) {
	h := twoHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	secret := secure.Generate()
	var outs [2]*launchtest.Buffer
	var ends [2]chan error
	for n := range h {
		cmd := exec.CommandContext(ctx, "ip", "netns", "exec", h[n], os.Args[0], strconv.Itoa(n), h.address(0)+":29400")
		cmd.Env = append(os.Environ(), role+"=secondnode", "CHORUS_SECRET="+secret, "TMPDIR="+t.TempDir())
		outs[n], ends[n] = launchtest.NewBuffer(), make(chan error, 1)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = outs[n], outs[n], 5*time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { ends[n] <- cmd.Wait() }()
	}
	for _, out := range outs {
		out.Await(t, "ready", 1)
	}
	if text, err := exec.Command("ip", "-n", h[1], "link", "set", cable, "down").CombinedOutput(); err != nil {
		t.Fatal(err, string(text))
	}
	pulled := time.Now()
	for n, end := range ends {
		if err := <-end; err == nil {
			t.Errorf("node %d ended well", n)
		}
		launchtest.WantText(t, outs[n].String(), fmt.Sprintf("node %d (", 1-n), "is lost: its launcher", " since ",
			"stopped rank "+strconv.Itoa(n))
	}
	if took := time.Since(pulled); took > 10*time.Second {
		t.Errorf("the launchers returned after %v; their heartbeat is a second", took)
	}
}
