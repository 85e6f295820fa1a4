package devicetest

import (
	"bytes"
	"errors"
	"slices"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
)

// add is a kernel: its first operand becomes the sum of all, byte by byte.
func add(n int) func(views []unsafe.Pointer) error {
	return func(views []unsafe.Pointer) error {
		out := unsafe.Slice((*byte)(views[0]), n)
		for _, v := range views[1:] {
			for i, b := range unsafe.Slice((*byte)(v), n) {
				out[i] += b
			}
		}
		return nil
	}
}

// sum is what add leaves in the first of its operands.
func sum(first []byte, more ...[]byte) []byte {
	out := slices.Clone(first)
	for _, m := range more {
		for i, b := range m {
			out[i] += b
		}
	}
	return out
}

var kernelCases = []testCase{
	{"Launch", 1, func(c *test) {
		k := c.drv.(driver.HostKernels)
		const n = 10_000
		a, b := pattern(n, 1), pattern(n, 2)
		p, q := c.put(0, a), c.put(0, b)
		h, hb := c.pinned(n)
		copy(hb, b)
		s := c.stream(0)
		release := c.hold(s)
		c.must(k.Launch(s, "add", []driver.Span{{Ptr: p, Bytes: n}, {Ptr: q, Bytes: n}, {Ptr: h, Bytes: n}}, add(n)))
		c.must(k.Launch(s, "add", []driver.Span{{Ptr: p.Add(1), Bytes: n - 1}, {Ptr: q, Bytes: n - 1}}, add(n-1)))
		release()
		c.sync(s)
		want := sum(a, b, b)
		copy(want[1:], sum(want[1:], b[:n-1]))
		if !bytes.Equal(c.get(0, p, n), want) {
			c.fail("a kernel's result is wrong")
		}
	}},
	{"Refused", 1, func(c *test) {
		k, s, p := c.drv.(driver.HostKernels), c.stream(0), c.malloc(0, 4096)
		f := func([]unsafe.Pointer) error { return nil }
		u, _ := c.ordinary(64)
		c.refused(k.Launch(s, "x", []driver.Span{{Ptr: p, Bytes: 4097}}, f), driver.ErrOutOfBounds,
			"an operand that is too long")
		c.refused(k.Launch(s, "x", []driver.Span{{Ptr: 0, Bytes: 1}}, f), driver.ErrInvalidPointer, "a null operand")
		c.refused(k.Launch(s, "x", []driver.Span{{Ptr: p, Bytes: -1}}, f), driver.ErrInvalidArgument,
			"an operand of -1 bytes")
		c.refused(k.Launch(s, "x", []driver.Span{{Ptr: u, Bytes: 64}}, f), driver.ErrWrongKind,
			"an operand in ordinary memory")
		c.refused(k.Launch(s, "x", nil, nil), driver.ErrInvalidArgument, "no function")
		c.refused(k.Launch(0, "x", nil, f), driver.ErrInvalidHandle, "a null stream")
		c.sync(s)
	}},
	{"Fails", 1, func(c *test) {
		k, s := c.drv.(driver.HostKernels), c.stream(0)
		c.must(k.Launch(s, "bad", nil, func([]unsafe.Pointer) error { return errTest }))
		c.carries(c.drv.StreamSynchronize(c.ctx, s), "StreamSynchronize")
		c.recover(s)
		c.must(k.Launch(s, "index", nil, func(v []unsafe.Pointer) error { v[3] = nil; return nil }))
		if err := c.drv.StreamSynchronize(c.ctx, s); !errors.Is(err, driver.ErrFailed) {
			c.fail("StreamSynchronize = %v after a kernel panicked", err)
		}
		c.drv.StreamRecover(c.ctx, s)
	}},
	{"View", 1, func(c *test) {
		k := c.drv.(driver.HostKernels)
		data := pattern(5000, 1)
		p := c.put(0, data)
		v, err := k.View(p.Add(100), 4900)
		c.must(err)
		if !bytes.Equal(unsafe.Slice((*byte)(v), 4900), data[100:]) {
			c.fail("a view shows other bytes")
		}
		_, err = k.View(p.Add(100), 4901)
		c.refused(err, driver.ErrOutOfBounds, "a view that is too long")
		_, err = k.View(0, 1)
		c.refused(err, driver.ErrInvalidPointer, "a view of null")
		u, _ := c.ordinary(64)
		_, err = k.View(u, 64)
		c.refused(err, driver.ErrWrongKind, "a view of ordinary memory")
	}},
	{"HostAccess", 1, func(c *test) {
		props, err := c.drv.Properties(0)
		c.must(err)
		if props.HostAccess {
			return
		}
		// The host's own pointer to device memory faults, and the fault is an error that says so.
		s, p := c.stream(0), c.malloc(0, 4096)
		var sink byte
		for name, f := range map[string]func(){
			"read":  func() { sink += bytesAt(p, 1)[0] },
			"write": func() { bytesAt(p, 1)[0] = sink },
		} {
			c.must(c.drv.HostFunc(s, name, func() error { f(); return nil }))
			if err := c.drv.StreamSynchronize(c.ctx, s); !errors.Is(err, driver.ErrHostAccess) {
				c.fail("a host function's %s of device memory: %v, want %q", name, err, driver.ErrHostAccess)
			}
			c.drv.StreamRecover(c.ctx, s)
		}
	}},
}

var peerCases = []testCase{
	{"Access", 2, func(c *test) {
		ps := c.drv.(driver.Peers)
		capable, err := ps.PeerCapable(0, 1)
		c.must(err)
		self, err := ps.PeerCapable(0, 0)
		c.must(err)
		if self {
			c.fail("a device is a peer of itself")
		}
		c.refused(ps.SetPeerAccess(0, 0, true), driver.ErrWrongDevice, "access to itself")
		c.refused(ps.SetPeerAccess(0, c.n, true), driver.ErrWrongDevice, "access to a device that there isn't")
		if !capable {
			c.refused(ps.SetPeerAccess(0, 1, true), driver.ErrUnsupported, "access that devices are not capable of")
			return
		}
		had, err := ps.PeerAccess(0, 1)
		c.must(err)
		c.after = append(c.after, func() { c.must(ps.SetPeerAccess(0, 1, had)) })
		data := pattern(100_000, 1)
		p, q, s := c.malloc(0, len(data)), c.put(1, data), c.stream(0)
		k, kernels := c.drv.(driver.HostKernels)
		for _, on := range []bool{true, false, true} {
			c.must(ps.SetPeerAccess(0, 1, on))
			if got, err := ps.PeerAccess(0, 1); got != on || err != nil {
				c.fail("PeerAccess = %v, %v, having been set to %v", got, err, on)
			}
			c.must(c.drv.Fill(s, p, 0, len(data)))
			c.must(c.drv.Copy(s, p, q, len(data), driver.DeviceToDevice))
			c.sync(s)
			if !bytes.Equal(c.get(0, p, len(data)), data) {
				c.fail("with access %v a copy between devices changed the data", on)
			}
			if !kernels {
				continue
			}
			err := k.Launch(s, "add", []driver.Span{{Ptr: p, Bytes: 10}, {Ptr: q, Bytes: 10}}, add(10))
			if on {
				c.must(err)
			} else {
				c.refused(err, driver.ErrWrongDevice, "a kernel on memory of a device without access")
			}
		}
		c.sync(s)
	}},
}

var ipcCases = []testCase{
	{"Refused", 1, func(c *test) {
		ipc := c.drv.(driver.IPC)
		p := c.malloc(0, 4096)
		h, _ := c.pinned(64)
		good, err := ipc.IPCHandle(p)
		c.must(err)
		_, err = ipc.IPCHandle(p.Add(1))
		c.refused(err, driver.ErrInvalidPointer, "a handle of the middle of an allocation")
		_, err = ipc.IPCHandle(0)
		c.refused(err, driver.ErrInvalidPointer, "a handle of null")
		_, err = ipc.IPCHandle(h)
		c.refused(err, driver.ErrWrongKind, "a handle of host memory")
		_, err = ipc.IPCOpen(0, good)
		c.refused(err, driver.ErrInvalidArgument, "opening the process's own handle")
		_, err = ipc.IPCOpen(c.n, good)
		c.refused(err, driver.ErrWrongDevice, "opening on a device that there isn't")
		for _, bad := range [][]byte{nil, good[:len(good)-1], append(slices.Clone(good), 0), make([]byte, len(good)),
			bytes.Repeat([]byte{0xff}, len(good))} {
			_, err = ipc.IPCOpen(0, bad)
			c.refused(err, driver.ErrInvalidArgument, "a handle that is none")
		}
		c.refused(ipc.IPCClose(p), driver.ErrInvalidPointer, "closing what was not opened")
	}},
}

var reserverCases = []testCase{
	{"Grow", 1, func(c *test) {
		r := c.drv.(driver.Reserver)
		g, err := r.Granularity(0)
		c.must(err)
		p, err := r.Reserve(0, 8*g)
		c.must(err)
		defer func() { c.must(r.Release(p)) }()
		free, _, err := c.drv.MemInfo(0)
		c.must(err)
		s := c.stream(0)
		c.refused(c.drv.Fill(s, p, 1, 1), driver.ErrInvalidArgument, "a fill of addresses without memory")
		c.must(r.Map(p, g))
		c.refused(c.drv.Fill(s, p, 1, g+1), driver.ErrOutOfBounds, "a fill beyond what is mapped")
		c.must(r.Map(p.Add(g), g))
		data := pattern(2*g, 1)
		c.write(0, p, data) // across the two pieces
		if !bytes.Equal(c.get(0, p, 2*g), data) {
			c.fail("memory that was mapped in pieces is not one range")
		}
		at, err := c.drv.Attributes(p.Add(g + 5))
		c.must(err)
		if at.Type != driver.DeviceMemory || at.Device != 0 || at.Base != p || at.Bytes != 2*g {
			c.fail("2 pieces of %d bytes mapped at %v: %+v", g, p, at)
		}
		c.must(r.Unmap(p, g))
		c.refused(c.drv.Fill(s, p, 1, 1), driver.ErrInvalidArgument, "a fill of memory that was unmapped")
		if !bytes.Equal(c.get(0, p.Add(g), g), data[g:]) {
			c.fail("unmapping one piece has changed another")
		}
		c.refused(r.Release(p), driver.ErrInvalidArgument, "releasing what memory is mapped to")
		c.must(r.Unmap(p.Add(g), g))
		if now, _, _ := c.drv.MemInfo(0); !c.shared && now < free {
			c.fail("%d bytes were free before, %d are after unmapping all", free, now)
		}
	}},
	{"Refused", 1, func(c *test) {
		r := c.drv.(driver.Reserver)
		g, err := r.Granularity(0)
		c.must(err)
		p, err := r.Reserve(0, 2*g)
		c.must(err)
		defer func() { c.must(r.Release(p)) }()
		_, err = r.Reserve(0, 0)
		c.refused(err, driver.ErrInvalidArgument, "reserving nothing")
		c.refused(r.Map(p, g+1), driver.ErrInvalidArgument, "mapping half a unit")
		c.refused(r.Map(p, 3*g), driver.ErrOutOfBounds, "mapping more than is reserved")
		c.refused(r.Map(c.malloc(0, g), g), driver.ErrInvalidPointer, "mapping to what isn't reserved")
		c.refused(r.Unmap(p, g), driver.ErrInvalidPointer, "unmapping what isn't mapped")
		c.must(r.Map(p, g))
		c.refused(r.Map(p, 2*g), driver.ErrInvalidPointer, "mapping what is mapped")
		c.refused(c.drv.Free(0, p), driver.ErrInvalidPointer, "freeing reserved memory")
		c.must(r.Unmap(p, g))
		c.refused(r.Release(p.Add(g)), driver.ErrInvalidPointer, "releasing from the middle")
	}},
}

var tracerCases = []testCase{
	{"Activities", 1, func(c *test) {
		tr := c.drv.(driver.Tracer)
		_, err := tr.TraceStop()
		c.refused(err, driver.ErrInvalidArgument, "stopping what was not started")
		p, q, s := c.malloc(0, 4096), c.malloc(0, 4096), c.stream(0)
		c.must(c.drv.Fill(s, p, 1, 4096)) // before the trace
		c.sync(s)
		c.must(tr.TraceStart())
		c.refused(tr.TraceStart(), driver.ErrInvalidArgument, "starting twice")
		c.must(c.drv.Copy(s, q, p, 4096, driver.DeviceToDevice))
		c.must(tr.TracePush(s, 41))
		c.must(tr.TracePush(s, 42))
		c.must(c.drv.Fill(s, p, 2, 100))
		for _, want := range []uint64{42, 41} {
			if id, err := tr.TracePop(s); id != want || err != nil {
				c.fail("TracePop = %d, %v, want %d", id, err, want)
			}
		}
		_, err = tr.TracePop(s)
		c.refused(err, driver.ErrInvalidArgument, "popping what is not there")
		c.must(c.drv.HostFunc(s, "mine", func() error { return nil }))
		c.sync(s)
		list, err := tr.TraceStop()
		c.must(err)
		c.must(c.drv.Fill(s, p, 3, 4096)) // after it
		c.sync(s)
		calls := map[uint64]driver.Activity{}
		var work []driver.Activity
		for i, a := range list {
			if i > 0 && a.Start.Before(list[i-1].Start) {
				c.fail("activities are not in the order of their start")
			}
			if a.End.Before(a.Start) || a.Device != 0 || a.Stream != s || a.Failed {
				c.fail("an activity is wrong: %+v", a)
			}
			if a.Kind == driver.ActivityRuntime {
				calls[a.Correlation] = a
			} else if a.Kind != driver.ActivityRecord {
				work = append(work, a)
			}
		}
		if len(work) != 3 {
			c.fail("there are %d activities besides calls, want 3: %+v", len(work), work)
		}
		// The device's clock and the host's, which times functions, agree to some microseconds.
		host := func(a driver.Activity) bool { return a.Kind == driver.ActivityHost }
		functions := slices.DeleteFunc(slices.Clone(work), func(a driver.Activity) bool { return !host(a) })
		work = append(slices.DeleteFunc(work, host), functions...)
		for i, want := range []driver.Activity{
			{Kind: driver.ActivityCopy, Bytes: 4096},
			{Kind: driver.ActivityFill, Bytes: 100, External: 42},
			{Kind: driver.ActivityHost, Name: "mine"},
		} {
			a := work[i]
			if a.Kind != want.Kind || a.Bytes != want.Bytes || a.External != want.External || want.Name != "" &&
				a.Name != want.Name {
				c.fail("activity %d is %+v, want %+v", i, a, want)
			}
			if call, ok := calls[a.Correlation]; !ok || a.Start.Before(call.Start) {
				c.fail("activity %d, %+v, has no call of the host before it", i, a)
			}
		}
	}},
}
