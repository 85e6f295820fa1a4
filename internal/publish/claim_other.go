//go:build !amd64

package publish

// Claim does nothing on this processor.
func Claim(p *uint64) {}
