//go:build linux

package nccl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/nccl/abi"
	"github.com/chorus-comms/chorus/comm/nccl/nccltest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// An abort of the library frees memory, which waits for all that the device has to do: for the kernels of other
// communicators, too, which hang until those are aborted. So no abort may wait for another.
func TestAborts(t *testing.T) {
	const several = 3
	var all sync.WaitGroup
	all.Add(several)
	library := simulate(t, nccltest.Options{Version: "2.27", Fail: func(call string, _ int) abi.Result {
		if call == "ncclCommAbort" {
			all.Done()
			all.Wait()
		}
		return abi.Success
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var comms []*comm.Comm
	for range several {
		comms = append(comms, open(t, "nccl", library, 1)...)
	}
	begin := time.Now()
	for _, c := range comms {
		c.Abort(errors.New("on purpose"))
	}
	for _, c := range comms {
		if err := c.Finalize(ctx); err != nil && !errors.Is(err, comm.ErrAborted) {
			t.Error(err)
		}
	}
	if d := time.Since(begin); d > 3*time.Second {
		t.Errorf("aborting %d communicators took %v", several, d)
	}
}

// An abort ends a call of the library that blocks, as it does until the other ranks come.
func TestAbortEndsBlockingCalls(t *testing.T) {
	calling, gate := make(chan struct{}), make(chan struct{})
	library := simulate(t, nccltest.Options{Version: "2.27", Fail: func(call string, _ int) abi.Result {
		switch call {
		case "ncclAllReduce":
			close(calling)
			<-gate
			return abi.InternalError
		case "ncclCommAbort":
			close(gate)
		}
		return abi.Success
	}})
	c := open(t, "nccl", library, 1, comm.WithHints(map[string]string{"library": library, "blocking": "1"}))[0]
	go func() {
		<-calling
		c.Abort(errors.New("on purpose"))
	}()
	x := tensor.Must(tensor.ZerosOn(t.Context(), c.Stream().Device(), dtype.Float32, 4))
	begin := time.Now()
	if err := c.AllReduce(t.Context(), x, comm.Sum); !errors.Is(err, comm.ErrAborted) {
		t.Errorf("AllReduce = %v", err)
	}
	if d := time.Since(begin); d > 10*time.Second { // the communicator's time is 30 s
		t.Errorf("it took %v", d)
	}
	if err := c.Finalize(t.Context()); err != nil && !errors.Is(err, comm.ErrAborted) {
		t.Error(err)
	}
}
