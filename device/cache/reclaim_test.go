package cache

import "testing"

// reclaimingFake is a fakeDriver that keeps freed memory until Reclaim.
type reclaimingFake struct {
	*fakeDriver
	kept []uintptr
	work func() // what the work that Reclaim waits for does
}

func (d *reclaimingFake) Free(addr uintptr) error {
	d.kept = append(d.kept, addr)
	return nil
}

func (d *reclaimingFake) Reclaim() {
	d.work()
	for _, addr := range d.kept {
		if err := d.fakeDriver.Free(addr); err != nil {
			panic(err)
		}
	}
	d.kept = nil
}

// An allocation waits for memory that the driver keeps for work, and the work may free memory meanwhile.
func TestReclaim(t *testing.T) {
	d := &reclaimingFake{fakeDriver: newFake(100 << 20)}
	c, err := New(d, Options{})
	must(t, err)
	used, a, b := malloc(t, c, 1000, 0), malloc(t, c, 40<<20, 0), malloc(t, c, 40<<20, 0)
	waited := 0
	d.work = func() {
		waited++
		must(t, c.Free(used))
	}
	must(t, c.Free(a))
	must(t, c.Free(b))
	must(t, c.Free(malloc(t, c, 60<<20, 0)))
	if waited != 1 {
		t.Errorf("the driver's memory was waited for %d times, want once", waited)
	}
}
