package cache

import "time"

// HostStats are PyTorch's torch.cuda.host_memory_stats of a [Host].
type HostStats struct {
	ActiveRequests Stat // blocks that callers have, or work that they enqueued
	ActiveBytes    Stat
	Allocations    Stat // blocks that the driver has given, unused ones included
	AllocatedBytes Stat

	AllocTime, FreeTime DurationStat // of the driver's
}

// DurationStat is how long calls took, in microseconds.
type DurationStat struct {
	Total, Max, Min, Count int64
}

func (s *DurationStat) add(d time.Duration) {
	us := d.Microseconds()
	if s.Min == 0 || us < s.Min {
		s.Min = us
	}
	s.Total += us
	s.Max = max(s.Max, us)
	s.Count++
}

// Stats returns the figures.
func (h *Host) Stats() HostStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stats
}

// ResetPeakStats makes the present figures the peaks, and lets the shortest and the longest call begin anew.
func (h *Host) ResetPeakStats() {
	h.resetStats(func(s *Stat) { s.Peak = s.Current }, func(s *DurationStat) { s.Max, s.Min = 0, 0 })
}

// ResetAccumulatedStats makes the sums and the counts 0.
func (h *Host) ResetAccumulatedStats() {
	h.resetStats(func(s *Stat) { s.Allocated, s.Freed = 0, 0 }, func(s *DurationStat) { s.Total, s.Count = 0, 0 })
}

func (h *Host) resetStats(stat func(*Stat), duration func(*DurationStat)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.each(func(_ string, s *Stat) { stat(s) }, func(_ string, s *DurationStat) { duration(s) })
}

// each calls stat or duration for each figure with the name that it has in PyTorch.
func (s *HostStats) each(stat func(name string, s *Stat), duration func(name string, s *DurationStat)) {
	stat("active_requests", &s.ActiveRequests)
	stat("active_bytes", &s.ActiveBytes)
	stat("allocations", &s.Allocations)
	stat("allocated_bytes", &s.AllocatedBytes)
	duration("host_alloc_time", &s.AllocTime)
	duration("host_free_time", &s.FreeTime)
}

// Map returns the figures under the names of torch.cuda.host_memory_stats, such as "active_bytes.current".
func (s HostStats) Map() map[string]int64 {
	m := map[string]int64{"num_host_alloc": s.Allocations.Allocated, "num_host_free": s.Allocations.Freed}
	s.each(func(name string, s *Stat) { s.put(m, name) }, func(name string, s *DurationStat) {
		m[name+".total"], m[name+".max"], m[name+".min"], m[name+".count"] = s.Total, s.Max, s.Min, s.Count
		m[name+".avg"] = s.Total / max(1, s.Count)
	})
	return m
}
