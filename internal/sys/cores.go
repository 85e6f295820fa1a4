package sys

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Core is the hardware threads of one core.
type Core struct {
	CPUs   CPUSet
	Socket int
	Node   int // of NUMA
}

// Cores returns the cores that some of the allowed processors belong to, with these processors only, ordered by NUMA
// node, socket and number. sys is where the kernel describes the devices of the system: /sys/devices/system. Where the
// kernel says nothing, as in some sandboxes, each processor counts as a core, in socket 0 and on node 0.
func Cores(sys string, allowed CPUSet) ([]Core, error) {
	nodes, err := nodesOf(sys)
	if err != nil {
		return nil, err
	}
	var cores []Core
	var seen CPUSet
	for _, n := range allowed {
		if slices.Contains(seen, n) {
			continue
		}
		topology := filepath.Join(sys, "cpu", fmt.Sprintf("cpu%d", n), "topology")
		core := Core{CPUs: CPUSet{n}, Node: nodes[n]}
		if text, ok := firstText(topology, "core_cpus_list", "thread_siblings_list"); ok {
			threads, err := ParseCPUs(text)
			if err != nil {
				return nil, fmt.Errorf("%w: %s", err, topology)
			}
			core.CPUs = threads.And(allowed).Or(core.CPUs)
		}
		if text, ok := firstText(topology, "physical_package_id"); ok {
			if core.Socket, err = strconv.Atoi(text); err != nil {
				return nil, fmt.Errorf("%s: socket %q", topology, text)
			}
		}
		seen = seen.Or(core.CPUs)
		cores = append(cores, core)
	}
	slices.SortStableFunc(cores,
		func(a, b Core) int { return cmp.Or(a.Node-b.Node, a.Socket-b.Socket, a.CPUs[0]-b.CPUs[0]) })
	return cores, nil
}

// nodesOf returns the NUMA node of each processor.
func nodesOf(sys string) (map[int]int, error) {
	nodes := map[int]int{}
	dirs, _ := filepath.Glob(filepath.Join(sys, "node", "node[0-9]*"))
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		if err != nil {
			continue
		}
		text, _ := firstText(dir, "cpulist")
		cpus, err := ParseCPUs(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, dir)
		}
		for _, n := range cpus {
			nodes[n] = id
		}
	}
	return nodes, nil
}

// firstText returns the text of the first file that can be read.
func firstText(dir string, names ...string) (string, bool) {
	for _, name := range names {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return strings.TrimSpace(string(text)), true
		}
	}
	return "", false
}
