//go:build !chorus_portable

package futex

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// affinity returns the cores that the calling thread may use.
func affinity(t *testing.T) (may unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	return may
}

// sit puts the calling thread on a core, lets it use them all again, and returns the one that it's on.
func sit(t *testing.T, core int, may unix.CPUSet) {
	t.Helper()
	var one unix.CPUSet
	one.Set(core)
	for _, set := range []unix.CPUSet{one, may} {
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			t.Fatal(err)
		}
	}
}

// Who finds the other on its own core leaves it, keeps what it may use, and acts on one word only once.
func TestApart(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	may := affinity(t)
	if may.Count() < 2 {
		t.Skip("one core")
	}
	core := int(runsOn())
	for try := 0; ; try++ { // the kernel may move the thread by itself, before or after
		sit(t, core, may)
		var mine, theirs, nobody Seat
		Apart(&theirs, &nobody) // as the other one would
		was := runsOn()
		Apart(&mine, &theirs)
		if now := affinity(t); now != may {
			t.Fatalf("the thread may use %v afterwards, not %v", now, may)
		}
		if uint32(mine.word.Load()) == 0 {
			t.Fatal("Apart doesn't say where the caller was")
		}
		if theirs.word.Load() == 0 && int(was) == core && int(runsOn()) != core {
			break
		}
		if try == 1000 {
			t.Fatalf("the thread never left core %d: the seat says %#x", core, theirs.word.Load())
		}
	}
}

// What was said long ago, or of another core, moves nobody; nor does anything move a thread that may use one core
// alone.
func TestApartStays(t *testing.T) {
	runtime.LockOSThread()
	may := affinity(t)
	core := int(runsOn())
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	var mine, nobody Seat
	Apart(&mine, &nobody)
	now := mine.word.Load()
	for name, seat := range map[string]uint64{
		"unknown": 0, "elsewhere": now + 1, "long ago": now - 1000<<32, "not yet": now + 1000<<32, "here": now,
		"nonsense": 1<<64 - 1,
	} {
		var theirs Seat
		theirs.word.Store(seat)
		Apart(&mine, &theirs)
		if got := theirs.word.Load(); got != seat && name != "here" {
			t.Errorf("%s: the seat became %#x", name, got)
		}
		if got := affinity(t); got != one || int(runsOn()) != core {
			t.Errorf("%s: the thread may use %v now, and is on core %d, not %d alone", name, got, runsOn(), core)
		}
	}
	if got := neighbors(core, &may); got.IsSet(core) {
		t.Error("a core is its own neighbor")
	}
}
