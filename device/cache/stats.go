package cache

// Stat is a figure that goes up and down: as it is, at its highest, and the sums of all increases and decreases.
type Stat struct {
	Current, Peak, Allocated, Freed int64
}

func (s *Stat) change(n int64) {
	s.Current += n
	s.Peak = max(s.Peak, s.Current)
	if n > 0 {
		s.Allocated += n
	} else {
		s.Freed -= n
	}
}

// put is the figure in a map of figures, as PyTorch names its parts.
func (s *Stat) put(m map[string]int64, name string) {
	m[name+".current"], m[name+".peak"], m[name+".allocated"], m[name+".freed"] = s.Current, s.Peak, s.Allocated, s.Freed
}

// The indexes of a [PoolStat].
const (
	All = iota
	SmallPool
	LargePool
)

// PoolStat is a figure for all memory, and apart for that of requests up to 1 MiB and for that of larger ones.
type PoolStat [3]Stat

func (s *PoolStat) change(p *pool, n int64) {
	s[All].change(n)
	if p.small {
		s[SmallPool].change(n)
	} else {
		s[LargePool].change(n)
	}
}

// Stats are PyTorch's torch.cuda.memory_stats. Sizes are in bytes.
type Stats struct {
	Allocation         PoolStat // allocations that callers have
	AllocatedBytes     PoolStat // their blocks
	RequestedBytes     PoolStat // what was asked for, of active blocks
	Segment            PoolStat // pieces of the driver's memory
	ReservedBytes      PoolStat // their bytes
	Active             PoolStat // blocks that are allocated or wait for events
	ActiveBytes        PoolStat
	InactiveSplit      PoolStat // free blocks that are parts of segments, which therefore can't be given back
	InactiveSplitBytes PoolStat

	OversizeAllocations Stat // of blocks that are never split
	OversizeSegments    Stat

	NumAllocRetries   int64 // allocations for which the cache had to be emptied
	NumOOMs           int64
	NumSyncAllStreams int64
	NumDeviceAlloc    int64 // requests of the driver, with those to map
	NumDeviceFree     int64
	MaxSplitSize      int64 // -1: unlimited
}

// Stats returns the figures.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// each calls f for each figure with the name that it has in PyTorch.
func (s *Stats) each(pools func(name string, p *PoolStat), stat func(name string, s *Stat),
	number func(name string, n *int64)) {
	for _, p := range []struct {
		name string
		stat *PoolStat
	}{
		{"allocation", &s.Allocation}, {"allocated_bytes", &s.AllocatedBytes}, {"requested_bytes", &s.RequestedBytes},
		{"segment", &s.Segment}, {"reserved_bytes", &s.ReservedBytes}, {"active", &s.Active}, {"active_bytes",
			&s.ActiveBytes},
		{"inactive_split", &s.InactiveSplit}, {"inactive_split_bytes", &s.InactiveSplitBytes},
	} {
		pools(p.name, p.stat)
	}
	stat("oversize_allocations", &s.OversizeAllocations)
	stat("oversize_segments", &s.OversizeSegments)
	for _, n := range []struct {
		name string
		n    *int64
	}{
		{"num_alloc_retries", &s.NumAllocRetries}, {"num_ooms", &s.NumOOMs}, {"num_sync_all_streams", &s.NumSyncAllStreams},
		{"num_device_alloc", &s.NumDeviceAlloc}, {"num_device_free", &s.NumDeviceFree}, {"max_split_size", &s.MaxSplitSize},
	} {
		number(n.name, n.n)
	}
}

// Map returns the figures under the names of torch.cuda.memory_stats, such as "allocated_bytes.all.current".
func (s Stats) Map() map[string]int64 {
	m := map[string]int64{}
	stat := func(name string, s *Stat) { s.put(m, name) }
	s.each(func(name string, p *PoolStat) {
		stat(name+".all", &p[All])
		stat(name+".small_pool", &p[SmallPool])
		stat(name+".large_pool", &p[LargePool])
	}, stat, func(name string, n *int64) { m[name] = *n })
	return m
}

// ResetPeakStats makes the present figures the peaks.
func (c *Cache) ResetPeakStats() {
	c.resetStats(func(s *Stat) { s.Peak = s.Current }, func(*int64) {})
}

// ResetAccumulatedStats makes the sums and the counters 0.
func (c *Cache) ResetAccumulatedStats() {
	c.resetStats(func(s *Stat) { s.Allocated, s.Freed = 0, 0 }, func(n *int64) { *n = 0 })
}

func (c *Cache) resetStats(stat func(*Stat), counter func(*int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.each(func(_ string, p *PoolStat) {
		for i := range p {
			stat(&p[i])
		}
	}, func(_ string, s *Stat) { stat(s) }, func(name string, n *int64) {
		if name != "max_split_size" {
			counter(n)
		}
	})
}
