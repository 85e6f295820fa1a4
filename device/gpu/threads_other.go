//go:build !linux

package gpu

// threadID would be the calling thread's number, which isn't known here.
func threadID() (id int, ok bool) { return 0, false }
