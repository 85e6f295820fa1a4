package comm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
)

func init() { programs["vain"] = inVain }

// inVain is a rank that waits for a message that doesn't come, or for one that does so and goes.
func inVain() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := join(ctx)
	if err != nil {
		return err
	}
	x := zeros(8)
	if err := c.Send(ctx, x, c.Rank(), comm.Tag(-1)); err == nil {
		return fmt.Errorf("a message with a tag of -1 was sent")
	}
	fmt.Println("goes on after a call that was refused")
	if c.Rank() == 0 {
		err = c.Recv(ctx, x, 1, comm.Timeout(50*time.Millisecond))
	} else {
		err = c.AllReduce(ctx, x, comm.Sum)
	}
	fmt.Println("goes on after", err)
	return nil
}

// TestAbortOnError demands that a failure, but no refused call, ends the process if TORCHCOMM_ABORT_ON_ERROR says so,
// with the error and all goroutines printed; and only then.
func TestAbortOnError(t *testing.T) {
	for _, abort := range []bool{true, false} {
		t.Run(fmt.Sprint(abort), func(t *testing.T) {
			t.Setenv("TORCHCOMM_ABORT_ON_ERROR", fmt.Sprint(abort))
			t.Setenv("GOTRACEBACK", "all")
			cmds, outs := start(t, "vain", "shm", 2)
			for r, cmd := range cmds {
				err := cmd.Wait()
				out := outs[r].String()
				want := []string{"goes on after a call that was refused", []string{"timed out", "rank 0 is lost"}[r]}
				if abort {
					want = append(want, "TORCHCOMM_ABORT_ON_ERROR", "SIGABRT", "goroutine 1 ", "inVain")
				} else {
					want = append(want, "goes on after chorus: rank "+fmt.Sprint(r))
				}
				for _, w := range want {
					if !strings.Contains(out, w) {
						t.Errorf("rank %d doesn't print %q:\n%s", r, w, out)
					}
				}
				if abort != (err != nil) || abort && strings.Contains(out, "goes on after chorus") {
					t.Errorf("rank %d ends with %v:\n%s", r, err, out)
				}
			}
		})
	}
}
