package kern

import (
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// copyRun bounds one call of the runtime's memory move, which, being assembly, can't be preempted either. From that
// size up the runtime's move bypasses the caches, which suits copies that would not fit them anyway; those smaller than
// fitsCache go in runs of cachedRun, which stay. Where two ranks gather blocks of 8 MiB, or exchange them, they touch
// 48 or 64 MiB: stores that stayed took four times or twice as long.
const (
	copyRun   = 1 << 20
	cachedRun = 512 << 10
	fitsCache = 8 << 20
)

// Copy copies bytes from src to dst. dst may be src; else they must not overlap.
func Copy(dst, src unsafe.Pointer, bytes int) {
	if dst == src {
		return
	}
	most := copyRun
	if bytes < fitsCache {
		if most = cachedRun; bytes <= cachedRun {
			copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
			return
		}
	}
	// Here and below loops advance an offset: a pointer stepped beyond the last element may be another object's.
	for off := 0; off < bytes; off += most {
		run := min(bytes-off, most)
		copy(unsafe.Slice((*byte)(unsafe.Add(dst, off)), run), unsafe.Slice((*byte)(unsafe.Add(src, off)), run))
	}
}

// CopyNT copies as [Copy] does, with stores that bypass the caches where the processor has them. That is faster for
// memory that another core is to read and that this one won't touch again, and much slower for memory that is needed
// here soon. When it returns, the bytes are visible to every thread that sees a later store of this thread, as with
// ordinary stores.
func CopyNT(dst, src unsafe.Pointer, bytes int) {
	k := &active.copyNT
	if k.run == nil || dst == src || bytes < k.chunk {
		Copy(dst, src, bytes)
		return
	}
	if head := -int(uintptr(dst)) & (k.align - 1); head > 0 {
		Copy(dst, src, head)
		dst, src = unsafe.Add(dst, head), unsafe.Add(src, head)
		bytes -= head
	}
	off := 0
	for bytes-off >= k.chunk {
		run := min(bytes-off, copyRun)
		run -= run % k.chunk
		k.run(hide(unsafe.Add(dst, off)), hide(unsafe.Add(src, off)), run)
		off += run
	}
	if off < bytes {
		Copy(unsafe.Add(dst, off), unsafe.Add(src, off), bytes-off)
	}
}

// Fill writes n copies of the element of type dt at elem to dst.
func Fill(dt dtype.DType, dst unsafe.Pointer, n int, elem unsafe.Pointer) {
	const pattern = 4096 // a block in L1, from which the rest is copied; a multiple of every element's size
	bytes := n * dt.Size()
	if bytes <= 0 {
		return
	}
	Copy(dst, elem, dt.Size())
	done := dt.Size()
	for done < min(bytes, pattern) { // double what is there
		run := min(done, bytes-done)
		Copy(unsafe.Add(dst, done), dst, run)
		done += run
	}
	for done < bytes {
		run := min(pattern, bytes-done)
		Copy(unsafe.Add(dst, done), dst, run)
		done += run
	}
}
