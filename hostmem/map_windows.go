package hostmem

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapAt takes size bytes of private memory, at whatever address: there are no peers whose buffers would have to differ
// in it.
func mapAt(_, size, _ int) (unsafe.Pointer, error) {
	base, err := windows.VirtualAlloc(0, uintptr(size), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, fmt.Errorf("hostmem: map %d bytes: %w", size, err)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&base)), nil // an address that is not of Go's memory
}

// unmap gives up what mapAt has mapped.
func unmap(base unsafe.Pointer, _ int) error {
	return windows.VirtualFree(uintptr(base), 0, windows.MEM_RELEASE)
}

// discard takes the memory behind a range of whole pages of private memory away: new pages take the place of the old
// ones.
func discard(base unsafe.Pointer, offset, size int) error {
	at := uintptr(base) + uintptr(offset)
	err := windows.VirtualFree(at, uintptr(size), windows.MEM_DECOMMIT)
	if err == nil {
		_, err = windows.VirtualAlloc(at, uintptr(size), windows.MEM_COMMIT, windows.PAGE_READWRITE)
	}
	if err != nil {
		return fmt.Errorf("hostmem: decommit %d bytes: %w", size, err)
	}
	return nil
}

func closeFile(int) error { return nil }
