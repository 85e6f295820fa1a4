package cache

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// mappedDriver is a driver whose memory is real, as an emulated accelerator's is: pages of the system.
type mappedDriver struct {
	*fakeDriver
	maps map[uintptr][]byte
}

func (d *mappedDriver) Alloc(n int64) (uintptr, error) {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 0, err
	}
	addr := uintptr(len(d.maps)+1) << 40
	d.maps[addr] = m
	return addr, nil
}

func (d *mappedDriver) Free(addr uintptr) error {
	m := d.maps[addr]
	delete(d.maps, addr)
	return unix.Munmap(m)
}

// BenchmarkPair measures a Malloc and its Free: of the driver, and from the cache when it's nearly empty and when it
// holds thousands of blocks.
func BenchmarkPair(b *testing.B) {
	const n = 1 << 20
	b.Run("driver", func(b *testing.B) {
		d := &mappedDriver{newFake(1 << 40), map[uintptr][]byte{}}
		b.ReportAllocs()
		for b.Loop() {
			p, err := d.Alloc(n)
			must(b, err)
			must(b, d.Free(p))
		}
	})
	for _, live := range []int{0, 10_000} {
		b.Run(map[bool]string{true: "cache", false: "cache with 10000 blocks"}[live == 0], func(b *testing.B) {
			c := open(b, newFake(1<<50))
			var p []uintptr
			for i := range live {
				p = append(p, malloc(b, c, int64(1+i%1000)<<10, 0))
			}
			for i := 0; i < len(p); i += 2 {
				must(b, c.Free(p[i]))
			}
			b.ReportAllocs()
			for b.Loop() {
				p, err := c.Malloc(n, 0)
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Free(p); err != nil {
					b.Fatal(err)
				}
			}
			runtime.KeepAlive(p)
		})
	}
}
