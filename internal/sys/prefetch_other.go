//go:build !amd64

package sys

// PrefetchWrite does nothing on this processor.
func PrefetchWrite(p *uint64) {}

// Prefetch does nothing on this processor.
func Prefetch(p *uint64) {}
