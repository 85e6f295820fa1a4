//go:build !amd64

package publish

// Claim does nothing on this processor.
func Claim(p *uint64) {}

// Fetch does nothing on this processor.
func Fetch(p *uint64) {}
