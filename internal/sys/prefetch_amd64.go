package sys

// PrefetchWrite asks the processor for the cache line of a word that will soon be stored, without waiting for it: other
// cores that have read it lose it now, and the store finds it here.
//
//go:noescape
func PrefetchWrite(p *uint64)

// Prefetch asks the processor for a word that others store and that will soon be loaded, without waiting for it.
//
//go:noescape
func Prefetch(p *uint64)
