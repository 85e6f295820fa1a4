//go:build amd64 || arm64

package kern

// Pause tells the processor n times that this thread is waiting in a loop (PAUSE on amd64, YIELD on arm64). It saves
// power, leaves the core to its other hardware thread, and shortens the time until a change is seen. The call can't be
// preempted; keep n small. It returns at once if n <= 0.
func Pause(n int)
