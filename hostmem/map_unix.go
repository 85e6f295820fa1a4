//go:build unix

package hostmem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAt maps size bytes of fd, shared and writable, or of private memory, at an address that is color pages above a
// multiple of 256 MiB. size must be a multiple of the page size.
func mapAt(fd, size, color int) (unsafe.Pointer, error) {
	// Reserve room enough to contain such an address, map over the middle, give the ends back.
	room := uintptr(size) + colorSpan
	area, err := unix.MmapPtr(-1, 0, nil, room, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("hostmem: reserve %d bytes of address space: %w", room, err)
	}
	residue := uintptr(color%(colorSpan/pageSize)) * uintptr(pageSize)
	head := (residue - uintptr(area)%colorSpan + colorSpan) % colorSpan
	base := unsafe.Add(area, head)
	flags := unix.MAP_SHARED | unix.MAP_FIXED
	if fd == private {
		flags = privateMemory
	}
	_, err = unix.MmapPtr(fd, 0, base, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		unix.MunmapPtr(area, room)
		return nil, fmt.Errorf("hostmem: map %d bytes: %w", size, err)
	}
	if head > 0 {
		unix.MunmapPtr(area, head)
	}
	if tail := colorSpan - head; tail > 0 {
		unix.MunmapPtr(unsafe.Add(base, size), tail)
	}
	return base, nil
}

// unmap gives up what mapAt has mapped.
func unmap(base unsafe.Pointer, size int) error { return unix.MunmapPtr(base, uintptr(size)) }

// discard takes the memory behind a range of whole pages of private memory away: new pages take the place of the old
// ones.
func discard(base unsafe.Pointer, offset, size int) error {
	if _, err := unix.MmapPtr(-1, 0, unsafe.Add(base, offset), uintptr(size), unix.PROT_READ|unix.PROT_WRITE,
		privateMemory); err != nil {
		return fmt.Errorf("hostmem: decommit %d bytes: mmap: %w", size, err)
	}
	return nil
}

// privateMemory are the flags of a mapping at an address that is reserved. Nothing is set aside for pages that may
// never be used.
const privateMemory = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED | unix.MAP_NORESERVE

func closeFile(fd int) error {
	if fd == private {
		return nil
	}
	return unix.Close(fd)
}
