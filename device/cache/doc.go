// Package cache is the caching allocator of devices: it asks a driver for large segments and gives out parts of them.
//
//	c, err := cache.New(driver, cache.Options{Device: 0, Allocator: cfg.DeviceAllocator()})
//	p, err := c.Malloc(1000, stream)   // 1024 bytes of a segment of 2 MiB
//	err = c.RecordStream(p, other)     // work on another stream uses it, too
//	err = c.Free(p)                    // reused on stream at once, elsewhere never, and not before other got here
//
// [Cache] follows the rules of PyTorch's CUDACachingAllocator, so that a program uses as much memory here as there, and
// statistics, snapshots and settings have the same names ([Stats], [Snapshot], config.Allocator). [Host] caches pinned
// host memory. A driver is whatever implements [Driver]; one that also implements [Reserver] has expandable segments.
//
// Invariants:
//
//   - A segment is a list of blocks without gaps; two neighbors are never both free (unless one of them isn't mapped).
//   - Memory belongs to the stream that it was allocated for, until its segment goes back to the driver. What is freed
//     is reused by that stream at once, because work on a stream runs in order.
//   - Memory that other streams use ([Cache.RecordStream]) is reused only after events on all of them.
//   - Any goroutine may call anything at any time. Malloc and Free that the cache serves allocate no Go memory.
//   - A wrong pointer is an error that says what is wrong, and changes nothing.
package cache
