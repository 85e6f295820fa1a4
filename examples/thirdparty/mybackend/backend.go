package mybackend

import (
	"context"
	"fmt"
	"unsafe"

	"example.com/thirdparty/mylib"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/comm/backend/base"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/kern"
	"github.com/chorus-comms/chorus/plan"
)

// Name is the name under which the backend is registered.
const Name = "mylib"

func init() { backend.Register(Name, open) }

func open(ctx context.Context, c backend.Config) (backend.Backend, error) {
	l, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	return begin(c, l), nil
}

// connect connects this rank with the others, whose addresses it finds in the store. They are on one host.
func connect(ctx context.Context, c backend.Config) (l link, err error) {
	for name := range c.Hints {
		return l, fmt.Errorf("unknown hint %q; %s takes none", name, Name)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	port, err := mylib.Listen("127.0.0.1")
	if err != nil {
		return l, err
	}
	addrs := make([]string, c.Size)
	if c.Size > 1 { // a world of one may have no store
		all, err := c.Exchange(ctx, []byte(port.Addr()))
		if err != nil {
			port.Close()
			return l, err
		}
		for r, addr := range all {
			addrs[r] = string(addr)
		}
	}
	l.lib, err = port.Connect(ctx, c.Rank, addrs)
	return l, err
}

func begin(c backend.Config, l link) backend.Backend {
	return base.NewRunner(c, base.RunnerConfig{Fabric: l, Own: l.sum, Capabilities: backend.Capabilities{
		Name: Name, Devices: []string{"cpu"}, Abort: true, AnySource: true, Tags: true, InProcess: true}})
}

// ownSum is how the library's own sum is called in profiles and reports.
const ownSum = "mylib_allreduce"

// sum is a collective that the library has: the sum over all ranks, of the numbers that it knows.
func (l link) sum(w *fabric.Waiter, c *base.Collective) (name string, err error) {
	if c.Request.Collective != plan.AllReduce || c.Kernel != kern.Sum || c.Average {
		return "", nil
	}
	var call func(stop <-chan struct{}) error
	switch c.DType {
	case dtype.Float32:
		call = sumOf[float32](l, c)
	case dtype.Float64:
		call = sumOf[float64](l, c)
	case dtype.Int32:
		call = sumOf[int32](l, c)
	case dtype.Int64:
		call = sumOf[int64](l, c)
	default:
		return "", nil
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err = call(stop)
	}()
	if late := w.Await(done); late != nil {
		close(stop)
		<-done // the library touches no buffer any more
		return "", late
	}
	return ownSum, translate(err)
}

func sumOf[T mylib.Number](l link, c *base.Collective) func(stop <-chan struct{}) error {
	numbers := func(p unsafe.Pointer) []T { return unsafe.Slice((*T)(p), c.Request.Count) }
	tag := tagOf(fabric.Key{Comm: c.Comm, Class: ofLibrary, Tag: c.Seq})
	return func(stop <-chan struct{}) error {
		return mylib.AllReduce(l.lib, c.Members, tag, numbers(c.Out), numbers(c.In), stop)
	}
}
