//go:build !chorus_portable

package hostmem

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memoryFiles says that this system has memory that processes can share by a descriptor, sealed against changes of its
// size.
const memoryFiles = true

// seals fix the size for good. F_SEAL_SEAL keeps a peer from adding F_SEAL_WRITE later.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// memoryFile makes a sealed memory file.
func memoryFile(size int) (fd int, err error) {
	if fd, err = unix.MemfdCreate("chorus", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, fmt.Errorf("hostmem: memfd_create: %w", err)
	}
	if err = withinLimit(size); err == nil {
		if err = unix.Ftruncate(fd, int64(size)); err != nil {
			err = fmt.Errorf("ftruncate: %w", err)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hostmem: size a segment to %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("hostmem: seal a segment: fcntl: %w", err)
	}
	return fd, nil
}

// withinLimit is an error if files of a size are beyond this process's limit. The kernel would send SIGXFSZ, which ends
// programs that don't expect it.
func withinLimit(size int) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil || uint64(size) <= l.Cur {
		return nil
	}
	return fmt.Errorf("files may have %d bytes here (RLIMIT_FSIZE, ulimit -f): %w", l.Cur, unix.EFBIG)
}

// populate makes every page of a range present, so that lack of memory is an error here and not a signal at some later
// store.
func populate(fd int, base unsafe.Pointer, offset, size int) error {
	err := retry(func() error {
		return unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(base, offset)), size), unix.MADV_POPULATE_WRITE)
	})
	by := "madvise"
	if fd != private && (errors.Is(err, unix.EINVAL) || refused(err)) {
		by = "fallocate" // Linux before 5.14, or a sandbox: the pages exist after this, but are mapped at first touch
		err = retry(func() error { return unix.Fallocate(fd, 0, int64(offset), int64(size)) })
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || refused(err) {
		touch(base, offset, size)
		return nil
	}
	if err != nil {
		return fmt.Errorf("hostmem: populate %d bytes: %s: %w", size, by, err)
	}
	return nil
}

// punch takes the memory behind a range of a memory file away, for all processes that have mapped it.
func punch(fd, offset, size int) error {
	err := retry(func() error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size))
	})
	if err != nil {
		return fmt.Errorf("hostmem: decommit %d bytes: fallocate: %w", size, err)
	}
	return nil
}

// checkFile returns the size of a peer's memory file, which can't shrink any more, and whether all of its memory is
// there.
func checkFile(fd int) (size int64, full bool, err error) {
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, false, fmt.Errorf("hostmem: descriptor %d is not a sealable memory file: %w", fd, err)
	}
	if have&unix.F_SEAL_SHRINK == 0 {
		return 0, false, fmt.Errorf("hostmem: descriptor %d is not sealed against shrinking", fd)
	}
	// After the seals, because only then the size cannot change any more.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false, fmt.Errorf("hostmem: fstat: %w", err)
	}
	return st.Size, st.Blocks*512 >= st.Size, nil
}

// prefault maps pages that exist, which costs page-table entries only. Failure moves that cost to the first touch.
func prefault(base unsafe.Pointer, size int) {
	_ = unix.Madvise(unsafe.Slice((*byte)(base), size), unix.MADV_POPULATE_WRITE)
}

// retry repeats a system call that a signal, of the Go scheduler or a profiler for example, has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
