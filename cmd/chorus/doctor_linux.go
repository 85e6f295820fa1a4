package main

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// tryHugeMemoryFile maps one huge page; no page may be in reserve.
func tryHugeMemoryFile(pageBytes int64) error {
	if pageBytes == 0 {
		return fmt.Errorf("no huge pages in this kernel")
	}
	fd, err := unix.MemfdCreate("chorus-doctor", unix.MFD_CLOEXEC|unix.MFD_HUGETLB)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, pageBytes); err != nil {
		return fmt.Errorf("ftruncate: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, int(pageBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w (no huge page in reserve)", err)
	}
	return unix.Munmap(mem)
}

// copyProbeWord copies a word of another process.
func copyProbeWord(pid int, addr uintptr) error {
	var word [8]byte
	local := []unix.Iovec{{Base: &word[0]}}
	local[0].SetLen(len(word))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: addr, Len: len(word)}}, 0)
	if err != nil {
		return fmt.Errorf("process_vm_readv: %w", err)
	}
	if n != len(word) || binary.NativeEndian.Uint64(word[:]) != probeWord {
		return fmt.Errorf("process_vm_readv copied %d bytes that are not those expected", n)
	}
	return nil
}
