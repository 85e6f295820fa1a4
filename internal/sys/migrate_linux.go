//go:build !chorus_portable

package sys

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hintLifetime is for how long a hint is believed, in units of 2^16 ns. Two processes that hand one core to each other
// write their hints every 100 us; a process that has computed since may be anywhere.
const hintLifetime = 16

// MigrateOffSharedCore moves the caller to another core if the process that it waits for runs on the same one, and
// writes the caller's core into mine. Two processes that spin for each other on one core hand it over only when one's
// time slice of spinning ends, so that every step takes hundreds of times as long as on two cores. The kernel leaves
// them there as long as other work keeps the other cores busy, because it takes all busy cores for equal. Sharing a
// core with that work instead costs at most half the time.
//
// The kernel chooses the core, among those that the caller may use and that share the last-level cache. A thread that
// may use one core alone stays where it is. MigrateOffSharedCore is for waits that have already spun without success
// for a while: it takes two system calls, and some 20 us when it moves.
func MigrateOffSharedCore(mine, theirs *CoreHint) {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	core, now := currentCore(), uint32(t.Nano()>>16)
	if core >= uint32(len(knownSharers)) {
		return // more than a CPUSet can name
	}
	mine.word.Store(uint64(now)<<32 | uint64(core+1))
	hint := theirs.word.Load()
	if uint32(hint) == core+1 && now-uint32(hint>>32) <= hintLifetime && theirs.word.CompareAndSwap(hint, 0) {
		leaveCore(int(core))
	}
}

// currentCore returns the number of the core that the caller runs on.
func currentCore() uint32 {
	var core uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&core)), 0, 0)
	return core
}

// leaveCore makes the calling thread run on any other core that it may use.
func leaveCore(core int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var may, other, now unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return
	}
	if other = cacheSharers(core, &may); other.Count() == 0 {
		other = may
		other.Clear(core)
	}
	if other.Count() == 0 || unix.SchedSetaffinity(0, &other) != nil {
		return
	}
	// Give back what it had. Every core there is, if that comes to the same, so that the thread has no wish of its own
	// that would outlast a change of what its container may use.
	now.Fill()
	unix.SchedSetaffinity(0, &now)
	if unix.SchedGetaffinity(0, &now) != nil || now != may {
		unix.SchedSetaffinity(0, &may)
	}
}

// cacheSharers returns the other cores of these that share the last level of cache with a core; none if the kernel
// doesn't tell.
func cacheSharers(core int, among *unix.CPUSet) (near unix.CPUSet) {
	sharers := knownSharers[core].Load()
	if sharers == nil {
		sharers = readSharers(core)
		knownSharers[core].Store(sharers)
	}
	for i := range near {
		near[i] = among[i] & sharers[i]
	}
	near.Clear(core)
	return near
}

// knownSharers keeps what readSharers has found for each core that a CPUSet can name: nothing here allocates a second
// time.
var knownSharers [len(unix.CPUSet{}) * 64]atomic.Pointer[unix.CPUSet]

// readSharers reads from the kernel which cores share the last level of cache with a core. The list looks like "0-3,8".
func readSharers(core int) *unix.CPUSet {
	var sharers unix.CPUSet
	list, err := os.ReadFile("/sys/devices/system/cpu/cpu" + strconv.Itoa(core) + "/cache/index3/shared_cpu_list")
	if err != nil {
		return &sharers
	}
	for run := range strings.SplitSeq(strings.TrimSpace(string(list)), ",") {
		first, last, isRun := strings.Cut(run, "-")
		if !isRun {
			last = first
		}
		lo, err1 := strconv.Atoi(first)
		hi, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil {
			return new(unix.CPUSet)
		}
		for c := lo; c <= hi && c < len(knownSharers); c++ {
			sharers.Set(c)
		}
	}
	return &sharers
}
