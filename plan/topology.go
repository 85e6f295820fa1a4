package plan

import "fmt"

func (t *Topology) validate(world int) error {
	if t == nil || t.Host == nil {
		return nil
	}
	if len(t.Host) != world {
		return fmt.Errorf("plan: topology of %d ranks for a world of %d", len(t.Host), world)
	}
	next := 0
	for r, h := range t.Host {
		if h < 0 || h > next {
			return fmt.Errorf("plan: rank %d is on host %d, but hosts are numbered from 0 in the order of their lowest rank", r,
				h)
		}
		if h == next {
			next++
		}
	}
	return nil
}

// Same reports whether two ranks share a host.
func (t *Topology) Same(a, b int) bool {
	return a == b || t != nil && t.Host != nil && t.Host[a] == t.Host[b]
}

// Hosts returns how many hosts a world of this topology has.
func (t *Topology) Hosts(world int) int {
	if t == nil || t.Host == nil {
		return world
	}
	hosts := 0
	for _, h := range t.Host {
		hosts = max(hosts, h+1)
	}
	return hosts
}

// groups returns the ranks of each host, ascending.
func (t *Topology) groups(world int) [][]int {
	groups := make([][]int, t.Hosts(world))
	for r := range world {
		h := r
		if t != nil && t.Host != nil {
			h = t.Host[r]
		}
		groups[h] = append(groups[h], r)
	}
	return groups
}

// largestHost returns the number of ranks on the fullest host.
func (t *Topology) largestHost(world int) int {
	if t == nil || t.Host == nil {
		return 1
	}
	most := 0
	for h, counts := 0, make([]int, world); h < world; h++ {
		counts[t.Host[h]]++
		most = max(most, counts[t.Host[h]])
	}
	return most
}
