package devicetest

import (
	"bytes"
	"slices"

	"github.com/chorus-comms/chorus/device/driver"
)

var deviceCases = []testCase{
	{"Count", 0, func(c *test) {
		n, err := c.drv.DeviceCount()
		c.must(err)
		if n < 1 {
			c.fail("there are %d devices", n)
		}
		if again, err := c.drv.DeviceCount(); again != n || err != nil {
			c.fail("there are %d devices, and then %d, %v", n, again, err)
		}
	}},
	{"Properties", 1, func(c *test) {
		ids := map[[16]byte]int{}
		for i := range c.n {
			p, err := c.drv.Properties(i)
			c.must(err)
			if p.TotalMemory <= 0 || p.PriorityLevels < 1 || p.Units < 1 || p.Name == "" {
				c.fail("device %d: %+v: name, memory, units and priorities must be there", i, p)
			}
			if j, taken := ids[p.UUID]; taken {
				c.fail("devices %d and %d have the same UUID", i, j)
			}
			ids[p.UUID] = i
		}
	}},
	{"Index", 0, func(c *test) {
		for _, i := range []int{-1, c.n, c.n + 100} {
			calls := map[string]func() error{
				"Properties":   func() error { _, err := c.drv.Properties(i); return err },
				"Malloc":       func() error { _, err := c.drv.Malloc(i, 1); return err },
				"Free":         func() error { return c.drv.Free(i, 1<<20) },
				"MemInfo":      func() error { _, _, err := c.drv.MemInfo(i); return err },
				"StreamCreate": func() error { _, err := c.drv.StreamCreate(i, 0); return err },
				"EventCreate":  func() error { _, err := c.drv.EventCreate(i, false); return err },
				"Synchronize":  func() error { return c.drv.Synchronize(c.ctx, i) },
			}
			for name, call := range calls {
				c.refused(call(), driver.ErrWrongDevice, name)
			}
		}
	}},
}

var memoryCases = []testCase{
	{"Malloc", 1, func(c *test) {
		type span struct{ lo, hi driver.Ptr }
		var spans []span
		for _, n := range []int{1, 255, 256, 257, 4096, 100_000, 3 << 20} {
			p := c.malloc(0, n)
			if p%256 != 0 {
				c.fail("%d bytes lie at %v, which is no multiple of 256", n, p)
			}
			for _, s := range spans {
				if p < s.hi && s.lo < p.Add(n) {
					c.fail("%d bytes at %v overlap another allocation at %v", n, p, s.lo)
				}
			}
			spans = append(spans, span{p, p.Add(n)})
		}
	}},
	{"MallocSizes", 1, func(c *test) {
		for _, n := range []int{0, -1} {
			_, err := c.drv.Malloc(0, n)
			c.refused(err, driver.ErrInvalidArgument, "Malloc")
			_, err = c.drv.MallocHost(n)
			c.refused(err, driver.ErrInvalidArgument, "MallocHost")
		}
	}},
	{"OutOfMemory", 1, func(c *test) {
		p, err := c.drv.Properties(0)
		c.must(err)
		for range 3 {
			_, err = c.drv.Malloc(0, int(p.TotalMemory)+1)
			c.refused(err, driver.ErrOutOfMemory, "more than all memory")
		}
		c.malloc(0, 4096)
	}},
	{"FreeNull", 1, func(c *test) {
		c.must(c.drv.Free(0, 0))
		c.must(c.drv.FreeHost(0))
	}},
	{"DoubleFree", 1, func(c *test) {
		p, err := c.drv.Malloc(0, 4096)
		c.must(err)
		c.must(c.drv.Free(0, p))
		c.refused(c.drv.Free(0, p), driver.ErrInvalidPointer, "the second Free")
		h, err := c.drv.MallocHost(4096)
		c.must(err)
		c.must(c.drv.FreeHost(h))
		c.refused(c.drv.FreeHost(h), driver.ErrInvalidPointer, "the second FreeHost")
	}},
	{"InteriorFree", 1, func(c *test) {
		p := c.malloc(0, 4096)
		c.refused(c.drv.Free(0, p.Add(1)), driver.ErrInvalidPointer, "Free inside an allocation")
		h, _ := c.pinned(4096)
		c.refused(c.drv.FreeHost(h.Add(256)), driver.ErrInvalidPointer, "FreeHost inside an allocation")
	}},
	{"FreeOther", 1, func(c *test) {
		h, _ := c.pinned(4096)
		c.refused(c.drv.Free(0, h), driver.ErrWrongKind, "Free of host memory")
		c.refused(c.drv.FreeHost(c.malloc(0, 4096)), driver.ErrWrongKind, "FreeHost of device memory")
		u, _ := c.ordinary(4096)
		c.refused(c.drv.Free(0, u), driver.ErrInvalidPointer, "Free of memory that the driver doesn't know")
	}},
	{"FreeOnOtherDevice", 2, func(c *test) {
		c.refused(c.drv.Free(1, c.malloc(0, 4096)), driver.ErrWrongDevice, "Free on another device")
	}},
	{"FreeUnderWork", 1, func(c *test) {
		data := pattern(100_000, 1)
		src, out := c.put(0, data), c.malloc(0, len(data))
		p, err := c.drv.Malloc(0, len(data))
		c.must(err)
		s := c.stream(0)
		release := c.hold(s)
		c.must(c.drv.Copy(s, p, src, len(data), driver.DeviceToDevice))
		c.must(c.drv.Copy(s, out, p, len(data), driver.DeviceToDevice))
		freed := make(chan error, 1)
		go func() { freed <- c.drv.Free(0, p) }() // may wait for the work, so it can't be waited for before release
		release()
		c.must(<-freed)
		c.sync(s)
		if !bytes.Equal(c.get(0, out, len(data)), data) {
			c.fail("work enqueued before Free saw other memory")
		}
	}},
	{"HostMemory", 1, func(c *test) {
		_, a := c.pinned(10_000)
		_, b := c.pinned(10_000)
		copy(a, pattern(10_000, 1))
		copy(b, pattern(10_000, 2))
		if !bytes.Equal(a, pattern(10_000, 1)) {
			c.fail("pinned memory doesn't hold what was written")
		}
	}},
	{"MemInfo", 1, func(c *test) {
		free, total, err := c.drv.MemInfo(0)
		c.must(err)
		if free < 0 || free > total {
			c.fail("%d of %d bytes are free", free, total)
		}
		if c.memory() == nil {
			return
		}
		c.malloc(0, 1<<20)
		if now, _, _ := c.drv.MemInfo(0); now > free-1<<20 {
			c.fail("%d bytes were free; with 1 MiB allocated %d are", free, now)
		}
	}},
	{"Attributes", 1, func(c *test) {
		_, err := c.drv.Attributes(0)
		c.refused(err, driver.ErrInvalidPointer, "null")
		for dev := range c.n {
			p := c.malloc(dev, 5000)
			for _, off := range []int{0, 1, 4999} {
				at, err := c.drv.Attributes(p.Add(off))
				c.must(err)
				if at.Type != driver.DeviceMemory || at.Device != dev || at.Base != p || at.Bytes < 5000 || at.Remote {
					c.fail("5000 bytes at %v of device %d: at %d: %+v", p, dev, off, at)
				}
			}
		}
		h, _ := c.pinned(5000)
		at, err := c.drv.Attributes(h.Add(77))
		c.must(err)
		if at.Type != driver.HostMemory || at.Device != -1 || at.Base != h || at.Bytes < 5000 {
			c.fail("pinned memory at %v: %+v", h, at)
		}
		p, _ := c.ordinary(4096)
		at, err = c.drv.Attributes(p)
		c.must(err)
		if at.Type != driver.Unmanaged || at.Device != -1 || at.Base != p {
			c.fail("memory that the driver doesn't know at %v: %+v", p, at)
		}
	}},
	{"Reuse", 1, func(c *test) {
		// Twice as much in turn as there may be at once: what is freed can be allocated again.
		free, _, err := c.drv.MemInfo(0)
		c.must(err)
		n := int(min(free/3, 64<<20))
		for range 2 * int(min(free/int64(n), 8)) {
			p, err := c.drv.Malloc(0, n)
			c.must(err)
			c.must(c.drv.Free(0, p))
		}
	}},
}

var copyCases = []testCase{
	{"RoundTrip", 1, func(c *test) {
		for _, n := range []int{1, 3, 255, 4096, 4097, 1 << 20, 5<<20 + 77} {
			data := pattern(n, n)
			if !bytes.Equal(c.get(0, c.put(0, data), n), data) {
				c.fail("%d bytes come back changed", n)
			}
		}
	}},
	{"Interior", 1, func(c *test) {
		want := pattern(10_000, 1)
		p, part := c.put(0, want), pattern(100, 9)
		c.write(0, p.Add(333), part)
		copy(want[333:], part)
		if !bytes.Equal(c.get(0, p, len(want)), want) {
			c.fail("a copy to the middle of an allocation changed something else, or nothing")
		}
		if !bytes.Equal(c.get(0, p.Add(5001), 99), want[5001:5100]) {
			c.fail("a copy from the middle of an allocation is wrong")
		}
	}},
	{"Kinds", 1, func(c *test) {
		d1, d2 := c.malloc(0, 64), c.malloc(0, 64)
		h1, _ := c.pinned(64)
		h2, _ := c.pinned(64)
		u1, _ := c.ordinary(64)
		u2, _ := c.ordinary(64)
		type side struct {
			name   string
			p      driver.Ptr
			device bool
		}
		dsts := []side{{"device", d1, true}, {"pinned", h1, false}, {"ordinary", u1, false}}
		srcs := []side{{"device", d2, true}, {"pinned", h2, false}, {"ordinary", u2, false}}
		s := c.stream(0)
		for kind := driver.HostToHost; kind <= driver.CopyDefault; kind++ {
			to := kind == driver.HostToDevice || kind == driver.DeviceToDevice
			from := kind == driver.DeviceToHost || kind == driver.DeviceToDevice
			for _, dst := range dsts {
				for _, src := range srcs {
					err := c.drv.Copy(s, dst.p, src.p, 64, kind)
					if kind == driver.CopyDefault || dst.device == to && src.device == from {
						if err != nil {
							c.fail("%v from %s to %s memory: %w", kind, src.name, dst.name, err)
						}
						continue
					}
					c.refused(err, driver.ErrWrongKind, kind.String()+" from "+src.name+" to "+dst.name+" memory")
				}
			}
		}
		c.refused(c.drv.Copy(s, d1, d2, 64, driver.CopyDefault+1), driver.ErrInvalidArgument, "a kind that there isn't")
		c.sync(s)
	}},
	{"Bounds", 1, func(c *test) {
		d1, d2 := c.malloc(0, 8192), c.malloc(0, 8192)
		h, _ := c.pinned(16384)
		s := c.stream(0)
		c.refused(c.drv.Copy(s, d1, h, 16384, driver.HostToDevice), driver.ErrOutOfBounds, "a destination that is too short")
		c.refused(c.drv.Copy(s, h, d1, 16384, driver.DeviceToHost), driver.ErrOutOfBounds, "a source that is too short")
		c.refused(c.drv.Copy(s, d1.Add(8000), d2, 8192, driver.DeviceToDevice), driver.ErrOutOfBounds,
			"a destination that ends too late")
		c.refused(c.drv.Copy(s, d1, h.Add(16000), 8192, driver.HostToDevice), driver.ErrOutOfBounds,
			"pinned memory that is too short")
		c.refused(c.drv.Fill(s, d1.Add(1), 0, 8192), driver.ErrOutOfBounds, "a fill that ends too late")
	}},
	{"Arguments", 1, func(c *test) {
		d := c.malloc(0, 64)
		h, _ := c.pinned(64)
		s := c.stream(0)
		c.refused(c.drv.Copy(s, 0, h, 64, driver.HostToDevice), driver.ErrInvalidPointer, "to null")
		c.refused(c.drv.Copy(s, d, 0, 64, driver.HostToDevice), driver.ErrInvalidPointer, "from null")
		c.refused(c.drv.Copy(s, d, h, 0, driver.HostToDevice), driver.ErrInvalidArgument, "no bytes")
		c.refused(c.drv.Copy(s, d, h, -1, driver.HostToDevice), driver.ErrInvalidArgument, "-1 bytes")
		c.refused(c.drv.Fill(s, 0, 1, 64), driver.ErrInvalidPointer, "a fill of null")
		c.refused(c.drv.Fill(s, d, 1, 0), driver.ErrInvalidArgument, "a fill of no bytes")
		c.refused(c.drv.Fill(s, h, 1, 64), driver.ErrWrongKind, "a fill of host memory")
	}},
	{"Fill", 1, func(c *test) {
		want := pattern(1<<20, 3)
		p, s := c.put(0, want), c.stream(0)
		c.must(c.drv.Fill(s, p.Add(1001), 0xa5, 700_001))
		c.sync(s)
		for i := range 700_001 {
			want[1001+i] = 0xa5
		}
		if !bytes.Equal(c.get(0, p, len(want)), want) {
			c.fail("a fill set other bytes than those it was to")
		}
	}},
	{"AcrossDevices", 2, func(c *test) {
		data := pattern(3<<20+5, 4)
		p, q := c.put(0, data), c.malloc(1, len(data))
		s := c.stream(1)
		c.must(c.drv.Copy(s, q, p, len(data), driver.DeviceToDevice))
		c.sync(s)
		if !bytes.Equal(c.get(1, q, len(data)), data) {
			c.fail("a copy between devices changed the data")
		}
	}},
	{"NotPinned", 1, func(c *test) {
		// A driver may wait in such a copy, and in one from host memory to host memory. The stream, others and their
		// memory can be used meanwhile.
		const n = 5000
		in, a := c.pinned(n)
		out, d := c.pinned(n)
		copy(a, pattern(n, 3))
		s, other, e := c.stream(0), c.stream(0), c.event(0, false)
		p := c.put(0, pattern(n, 1))
		h, b := c.ordinary(n)
		release := c.hold(s)
		copied := make(chan error, 2)
		go func() { copied <- c.drv.Copy(s, h, p, n, driver.DeviceToHost) }()
		go func() { copied <- c.drv.Copy(s, out, in, n, driver.CopyDefault) }()
		for range 20 { // so that some come while the copy waits
			done, err := c.drv.StreamQuery(s)
			c.must(err)
			if done {
				c.fail("the stream, which is held back, is done")
			}
			c.must(c.drv.EventRecord(e, s))
			c.put(0, pattern(n, 2))
			c.sync(other)
		}
		release()
		c.must(<-copied)
		c.must(<-copied)
		c.sync(s)
		if !bytes.Equal(b, pattern(n, 1)) || !bytes.Equal(d, pattern(n, 3)) {
			c.fail("the copy has other data")
		}
	}},
	{"Concurrent", 1, func(c *test) {
		const n, streams = 300_000, 4
		var ends [streams]func() []byte
		for i := range streams {
			s := c.stream(0)
			in, a := c.pinned(n)
			out, b := c.pinned(n)
			p, q := c.malloc(0, n), c.malloc(0, n)
			copy(a, pattern(n, i))
			c.must(c.drv.Copy(s, p, in, n, driver.HostToDevice))
			c.must(c.drv.Copy(s, q, p, n, driver.DeviceToDevice))
			c.must(c.drv.Copy(s, out, q, n, driver.DeviceToHost))
			ends[i] = func() []byte { c.sync(s); return slices.Clone(b) }
		}
		for i, end := range ends {
			if !bytes.Equal(end(), pattern(n, i)) {
				c.fail("stream %d has other data than its own", i)
			}
		}
	}},
}
