//go:build !amd64 || race

package observe

import "sync/atomic"

func put(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
