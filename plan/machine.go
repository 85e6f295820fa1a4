package plan

import "fmt"

// Machine holds the numbers from which costs are computed. All ranks of a
// communicator must use the same values, or they would choose different
// algorithms. It encodes to JSON: package calibration keeps measured values in a file.
type Machine struct {
	// Local carries messages between ranks of one host, Remote between hosts.
	Local  LinkCost `json:"local"`
	Remote LinkCost `json:"remote"`
	// Sync is the time in seconds from a Notify to the end of the Await for it;
	// CrowdedSync the same when a host has more ranks than cores, per rank.
	Sync        float64 `json:"sync_s"`
	CrowdedSync float64 `json:"crowded_sync_s"`
	// Copy and Reduce are the bytes per second at which one core copies a buffer
	// (one read, one write) and adds one to another (two reads, one write).
	Copy   float64 `json:"copy_bytes_per_s"`
	Reduce float64 `json:"reduce_bytes_per_s"`
	// Cores of each host; 0: at least as many as it has ranks.
	Cores int `json:"cores"`
}

// LinkCost describes the two-sided messages of one class of pairs.
type LinkCost struct {
	Latency   float64 `json:"latency_s"`   // seconds until an empty message has arrived
	Overhead  float64 `json:"overhead_s"`  // seconds of a core for one more message at the same time
	Bandwidth float64 `json:"bytes_per_s"` // of one rank in each direction
}

// DefaultMachine returns what was measured on a virtual machine of two cores (AMD EPYC with
// AVX-512, 2026). A cache line took 55 to 325 ns between the cores, and a hop with yielding ranks 2
// us. TCP over loopback took 7 to 11 us, at 4 to 5 GB/s. Copies and sums within the caches of a
// core ran at about 50 GB/s.
func DefaultMachine() Machine {
	return Machine{
		Local:       LinkCost{Latency: 0.4e-6, Overhead: 0.1e-6, Bandwidth: 12e9},
		Remote:      LinkCost{Latency: 11e-6, Overhead: 2e-6, Bandwidth: 4.5e9},
		Sync:        0.1e-6,
		CrowdedSync: 2e-6,
		Copy:        50e9,
		Reduce:      50e9,
	}
}

// Validate reports a number that no machine has: times outside 1 ns to 10 s, rates outside 1 kB/s to 1 PB/s. Values
// that come from a file or from another rank are checked before they decide anything.
func (m Machine) Validate() error {
	for _, v := range []struct {
		name             string
		value, low, high float64
	}{
		{"local.latency_s", m.Local.Latency, leastTime, mostTime},
		{"local.overhead_s", m.Local.Overhead, leastTime, mostTime},
		{"local.bytes_per_s", m.Local.Bandwidth, leastRate, mostRate},
		{"remote.latency_s", m.Remote.Latency, leastTime, mostTime},
		{"remote.overhead_s", m.Remote.Overhead, leastTime, mostTime},
		{"remote.bytes_per_s", m.Remote.Bandwidth, leastRate, mostRate},
		{"sync_s", m.Sync, leastTime, mostTime},
		{"crowded_sync_s", m.CrowdedSync, leastTime, mostTime},
		{"copy_bytes_per_s", m.Copy, leastRate, mostRate},
		{"reduce_bytes_per_s", m.Reduce, leastRate, mostRate},
	} {
		if !(v.value >= v.low && v.value <= v.high) { // not a number is neither
			return fmt.Errorf("plan: %s is %g; it can be from %g to %g", v.name, v.value, v.low, v.high)
		}
	}
	if m.Cores < 0 {
		return fmt.Errorf("plan: a machine of %d cores", m.Cores)
	}
	return nil
}

const (
	leastTime, mostTime = 1e-9, 10.0
	leastRate, mostRate = 1e3, 1e15
)

// crowd returns how many ranks share a core of the fullest host, at least 1.
func (m Machine) crowd(q Request) float64 {
	ranks := q.Topo.largestHost(q.World)
	if m.Cores == 0 || ranks <= m.Cores {
		return 1
	}
	return float64(ranks) / float64(m.Cores)
}

// sync returns the seconds of one synchronization of a host.
func (m Machine) sync(q Request) float64 {
	if m.crowd(q) > 1 {
		return m.CrowdedSync * float64(q.Topo.largestHost(q.World))
	}
	return m.Sync
}

// link returns the links that bound a two-sided algorithm over the whole world.
func (m Machine) link(q Request) LinkCost {
	if q.Topo.Hosts(q.World) == 1 {
		l := m.Local
		l.Latency = max(l.Latency, m.sync(q))
		l.Bandwidth /= m.crowd(q)
		return l
	}
	return m.Remote
}

func (l LinkCost) time(bytes float64) float64 { return l.Latency + bytes/l.Bandwidth }
