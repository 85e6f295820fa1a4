package record

import "sync/atomic"

// between, of tests alone, is called before each load: they have the recorder's owner go on there.
var between func()

// load loads a word that others store meanwhile. Readers aren't in a hurry, so that tests may stop them here.
func load(p *uint64) uint64 {
	if between != nil {
		between()
	}
	return atomic.LoadUint64(p)
}
