// Command overlap records how the gradient of one layer is averaged while the one before is computed: two ranks in this
// process, each with an emulated accelerator, and a timeline in Chrome's trace format.
//
//	go run ./examples/overlap timeline.json
//
// Open the file in chrome://tracing or ui.perfetto.dev; if its name ends in .svg it's a picture. It also prints how
// much of the communication ran beside computation.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/device"
	_ "github.com/chorus-comms/chorus/device/accinte"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

const (
	ranks  = 2
	layers = 4
	steps  = 3
	size   = 1 << 20 // elements of a layer's gradient
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: overlap FILE.json, or FILE.svg")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	rt, err := device.Open("accinte")
	if err != nil {
		return err
	}
	st := store.NewHash(time.Minute)
	defer st.Close()
	profile, err := device.StartProfile(rt)
	if err != nil {
		return err
	}
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for r := range ranks {
		all.Go(func() { errs[r] = train(r, st, profile) })
	}
	all.Wait()
	trace, err := profile.Stop()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	compute, communicate, both := overlap(trace.Activities["accinte"])
	fmt.Printf("device 0 computed for %v and communicated for %v; for %v it did both\n", compute, communicate, both)
	if strings.HasSuffix(path, ".svg") {
		return errors.Join(draw(file, trace.Activities["accinte"]), file.Close())
	}
	return errors.Join(trace.WriteChrome(file), file.Close())
}

// train is one rank: backward through the layers, each gradient on its way as soon as it's there.
func train(rank int, st store.Store, profile *device.Profile) error {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithRank(rank, ranks), comm.WithStore(st), comm.WithDevice(fmt.Sprintf("accinte:%d",
		rank)))
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	s, err := c.Stream().Device().Stream(device.Normal)
	if err != nil {
		return err
	}
	ctx = device.WithStream(ctx, s)
	grads := make([]*tensor.Tensor, layers)
	for i := range grads {
		if grads[i], err = tensor.ZerosOn(ctx, s.Device(), dtype.Float32, size); err != nil {
			return err
		}
	}
	for step := range steps {
		end := profile.Range(fmt.Sprintf("rank %d enqueues step %d", rank, step))
		works := make([]comm.Work, layers)
		for i := layers - 1; i >= 0; i-- {
			if err := backward(s, i, grads[i]); err != nil {
				return err
			}
			if err := c.AllReduce(ctx, grads[i], comm.Avg, comm.Async(&works[i])); err != nil {
				return err
			}
		}
		for i := range works {
			if err := works[i].Wait(ctx); err != nil { // the stream waits, not this goroutine
				return err
			}
		}
		end()
	}
	if err := s.Synchronize(ctx); err != nil {
		return err
	}
	host, err := grads[0].To(ctx, nil)
	if err == nil && host.At(1) != steps*1.5 { // the mean of steps of 1 and of 2
		err = fmt.Errorf("the gradient is %v", host)
	}
	return err
}

// backward enqueues the kernel of a layer: it adds this rank's gradient.
func backward(s *device.Stream, layer int, grad *tensor.Tensor) error {
	own := float32(s.Device().Index() + 1)
	span := device.Span{Ptr: device.Ptr(uintptr(grad.Pointer())), Bytes: grad.NBytes()}
	return s.Launch(fmt.Sprintf("backward of layer %d", layer), []device.Span{span}, func(views []unsafe.Pointer) error {
		g := unsafe.Slice((*float32)(views[0]), size)
		for i := range g {
			x := own
			for range 4 { // something to do
				x = x*x - x*(x-1)
			}
			g[i] += x
		}
		return nil
	})
}

// overlap tells for how long device 0 computed, communicated, and did both.
func overlap(activities []device.Activity) (compute, communicate, both time.Duration) {
	var kernels, operations []device.Activity
	for _, a := range activities {
		switch {
		case a.Device != 0:
		case a.Kind == device.ActivityKernel && strings.HasPrefix(a.Name, "backward"):
			kernels = append(kernels, a)
			compute += a.End.Sub(a.Start)
		case a.Kind == device.ActivityHost && a.Name == "all_reduce":
			operations = append(operations, a)
			communicate += a.End.Sub(a.Start)
		}
	}
	for _, k := range kernels {
		for _, o := range operations {
			start, end := k.Start, k.End
			if o.Start.After(start) {
				start = o.Start
			}
			if o.End.Before(end) {
				end = o.End
			}
			both += max(0, end.Sub(start))
		}
	}
	return compute, communicate, both
}
