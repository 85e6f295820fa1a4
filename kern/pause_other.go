//go:build !amd64 && !arm64

package kern

// Pause does nothing on this processor.
func Pause(n int) {}
