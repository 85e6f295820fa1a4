package main

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"
)

// TestCgroups builds the files that the kernel shows under both versions.
func TestCgroups(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		files  map[string]string
		cores  float64
		memory int64
	}{
		"nothing": {},
		"version 2": {map[string]string{
			"proc/self/cgroup":               "0::/a/b\n",
			"sys/fs/cgroup/a/b/cpu.max":      "400000 100000\n",
			"sys/fs/cgroup/a/cpu.max":        "150000 100000\n",
			"sys/fs/cgroup/a/b/memory.max":   "max\n",
			"sys/fs/cgroup/a/memory.max":     "1073741824\n",
			"sys/fs/cgroup/other/memory.max": "1\n",
		}, 1.5, gib},
		"version 2, no limits": {map[string]string{
			"proc/self/cgroup":         "0::/\n",
			"sys/fs/cgroup/cpu.max":    "max 100000\n",
			"sys/fs/cgroup/memory.max": "max\n",
		}, 0, 0},
		"version 1 in a container": {map[string]string{
			"proc/self/cgroup":                            "7:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "50000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "536870912\n",
		}, 0.5, gib / 2},
		"version 1, no limits": {map[string]string{
			"proc/self/cgroup":                           "2:cpu:/\n3:memory:/\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":        "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0, 0},
	} {
		root := t.TempDir()
		for path, text := range test.files {
			path = filepath.Join(root, path)
			os.MkdirAll(filepath.Dir(path), 0o700)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupCores(root); got != test.cores {
			t.Errorf("%s: %v cores, want %v", name, got, test.cores)
		}
		if got := cgroupMemory(root, 4*gib); got != test.memory {
			t.Errorf("%s: %d bytes, want %d", name, got, test.memory)
		}
	}
}

func TestBytesText(t *testing.T) {
	for want, n := range map[string]int64{"0 B": 0, "1023 B": 1023, "1 KiB": 1024, "1.5 MiB": 3 << 19,
		"23.5 GiB": 47 << 29, "2 TiB": 2 << 40} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestCopyProbeSeesWrongMemory(t *testing.T) {
	word := make([]byte, 8)
	if err := copyProbeWord(os.Getpid(), uintptr(unsafe.Pointer(&word[0]))); err == nil {
		t.Error("a word that is not the probe's was accepted")
	}
	if err := copyProbeWord(os.Getpid(), 8); err == nil {
		t.Error("an address without memory was accepted")
	}
}
