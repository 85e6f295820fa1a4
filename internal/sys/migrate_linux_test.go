//go:build !chorus_portable

package sys

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

// A caller that finds the other on its own core leaves it, keeps its affinity, and acts on one hint only once.
func TestMigrate(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	may := affinity(t)
	if may.Count() < 2 {
		t.Skip("one core")
	}
	core := int(currentCore())
	for try := 0; ; try++ { // the kernel may move the thread by itself, before or after
		sit(t, core, may)
		var mine, theirs, nobody CoreHint
		MigrateOffSharedCore(&theirs, &nobody) // as the other one would
		was := currentCore()
		MigrateOffSharedCore(&mine, &theirs)
		if now := affinity(t); now != may {
			t.Fatalf("the thread may use %v afterwards, not %v", now, may)
		}
		if uint32(mine.word.Load()) == 0 {
			t.Fatal("MigrateOffSharedCore doesn't say where the caller was")
		}
		if theirs.word.Load() == 0 && int(was) == core && int(currentCore()) != core {
			break
		}
		if try == 1000 {
			t.Fatalf("the thread never left core %d: the hint says %#x", core, theirs.word.Load())
		}
	}
}

// A hint that is old, or of another core, moves no thread; no hint moves a thread that may use one core alone.
func TestMigrateStays(t *testing.T) {
	runtime.LockOSThread()
	may := affinity(t)
	core := int(currentCore())
	var one unix.CPUSet
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	var mine, nobody CoreHint
	MigrateOffSharedCore(&mine, &nobody)
	now := mine.word.Load()
	for name, hint := range map[string]uint64{
		"unknown": 0, "elsewhere": now + 1, "long ago": now - 1000<<32, "not yet": now + 1000<<32, "here": now,
		"nonsense": 1<<64 - 1,
	} {
		var theirs CoreHint
		theirs.word.Store(hint)
		MigrateOffSharedCore(&mine, &theirs)
		if got := theirs.word.Load(); got != hint && name != "here" {
			t.Errorf("%s: the hint became %#x", name, got)
		}
		if got := affinity(t); got != one || int(currentCore()) != core {
			t.Errorf("%s: the thread may use %v now, and is on core %d, not %d alone", name, got, currentCore(), core)
		}
	}
	if got := cacheSharers(core, &may); got.IsSet(core) {
		t.Error("a core is its own neighbor")
	}
}
