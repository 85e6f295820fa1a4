package comm_test

import (
	"context"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A communicator of one rank goes on when all the ranks that it was split from are gone: with its window, whose
// requests come from any of its ranks, and with messages from anyone.
func TestAloneWhenAllOthersHaveLeft(t *testing.T) {
	for _, fabric := range []string{"mem", "shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			comms := over(fabric)(t, 2)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			left := make(chan error)
			go func() {
				_, err := comms[1].Split(ctx, nil)
				if err == nil {
					err = comms[1].Finalize(ctx)
				}
				left <- err
			}()
			alone, err := comms[0].Split(ctx, []int{0})
			if err != nil {
				t.Fatal(err)
			}
			x := tensor.Must(tensor.Zeros(dtype.Int32, 4))
			w, err := alone.NewWindow(ctx, x)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-left; err != nil {
				t.Fatal(err)
			}
			if err := comms[0].Barrier(ctx, comm.Timeout(5*time.Second)); err == nil {
				t.Error("a barrier without the other rank")
			}
			if err := w.Put(ctx, tensor.Of([]int32{7}), comm.Target{Rank: 0}); err != nil {
				t.Error(err)
			}
			if err := w.Fence(ctx, -1); err != nil {
				t.Error(err)
			}
			got := []int32{0}
			var sent comm.Work
			if err := alone.Send(ctx, tensor.Of([]int32{9}), 0, comm.Async(&sent)); err != nil {
				t.Error(err)
			}
			if err := alone.Recv(ctx, tensor.Of(got), comm.AnySource); err != nil || got[0] != 9 {
				t.Error(got, err)
			}
			if err := sent.Wait(ctx); err != nil {
				t.Error(err)
			}
			if err := w.Close(ctx); err != nil {
				t.Error(err)
			}
			alone.Finalize(ctx)
			comms[0].Finalize(ctx)
		})
	}
}
