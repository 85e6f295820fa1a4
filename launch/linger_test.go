package launch

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/launchtest"
)

// A rank that is stopped, which the survivors have left out, doesn't keep a job that may lose it.
func TestStoppedRankIsLost(t *testing.T) {
	for name, more := range map[string][]string{"ends": nil, "is deaf": {"deaf"}} {
		t.Run(name, func(t *testing.T) {
			job, _, errs := newJob(t, 3, "stopped", append([]string{"1", t.TempDir()}, more...)...)
			job.MayLose, job.Grace = 1, 50*time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := job.Run(ctx); err != nil {
				t.Errorf("%v:\n%s", err, errs)
			}
			launchtest.WantText(t, errs.String(), "ending rank 1, stopped by a signal: the other ranks of this node have ended")
		})
	}
}

// Of a rank that may not be lost, and of one that isn't stopped, the launcher says that it waits.
func TestWaitsForTheLast(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	signals := make(chan os.Signal, 1)
	job, _, errs := newJob(t, 2, "stopped", "1", t.TempDir())
	job.Grace, job.Signals = 50*time.Millisecond, signals
	go func() {
		errs.Await(t, "waiting for rank 1; the other ranks of this node have ended, the last ", 1)
		signals <- syscall.SIGTERM
	}()
	if f := launchtest.WantFailure(t, job.Run(ctx)); f.Kind != Interrupted {
		t.Errorf("%v", f)
	}
	launchtest.WantText(t, errs.String(), "ago; stopped by a signal: rank 1\n")

	now := filepath.Join(t.TempDir(), "now")
	job, _, errs = newJob(t, 2, "last", "0", now)
	job.MayLose, job.Grace = 1, 50*time.Millisecond
	go func() {
		errs.Await(t, "waiting for rank 0; the other ranks of this node have ended, the last ", 1)
		check(os.WriteFile(now, nil, 0o600))
	}()
	if err := job.Run(ctx); err != nil {
		t.Errorf("%v:\n%s", err, errs)
	}
}
