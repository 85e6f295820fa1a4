package gpu

import "golang.org/x/sys/unix"

// threadID is the calling thread's number.
func threadID() (id int, ok bool) { return unix.Gettid(), true }
