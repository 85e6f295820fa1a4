package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroupCores returns how many cores' worth of time this process may use, or 0 where there is no limit. The file system
// is seen from root, which is "/" but in tests.
func cgroupCores(root string) float64 {
	limit := 0.0
	lower := func(quota, period string) {
		q, err := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err == nil && err2 == nil && q > 0 && p > 0 && (limit == 0 || q/p < limit) {
			limit = q / p
		}
	}
	for _, dir := range cgroupDirs(root, "cpu") {
		if f := strings.Fields(readText(filepath.Join(dir, "cpu.max"))); len(f) == 2 { // version 2: "max 100000"
			lower(f[0], f[1])
		}
		lower(readText(filepath.Join(dir, "cpu.cfs_quota_us")), readText(filepath.Join(dir, "cpu.cfs_period_us")))
	}
	return limit
}

// cgroupMemory returns how much memory this process may use, or 0 where that is no less than total.
func cgroupMemory(root string, total int64) int64 {
	limit := total
	for _, dir := range cgroupDirs(root, "memory") {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if n, err := strconv.ParseInt(readText(filepath.Join(dir, name)), 10, 64); err == nil && n < limit {
				limit = n
			}
		}
	}
	if limit == total {
		return 0
	}
	return limit
}

// cgroupDirs returns the directories that may limit this process for a controller: its cgroup and all above it, in
// version 2 and in version 1. In a container the path is often not visible from inside, but the root is.
func cgroupDirs(root, controller string) []string {
	var dirs []string
	for line := range strings.Lines(readText(filepath.Join(root, "proc/self/cgroup"))) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var bases []string
		switch {
		case f[0] == "0":
			bases = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		case slices.Contains(strings.Split(f[1], ","), controller):
			bases = []string{"sys/fs/cgroup/" + f[1], "sys/fs/cgroup/" + controller}
		}
		for _, base := range bases {
			for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
				dirs = append(dirs, filepath.Join(root, base, path))
				if path == "/" {
					break
				}
			}
		}
	}
	return dirs
}
