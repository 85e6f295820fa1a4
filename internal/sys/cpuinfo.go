package sys

import (
	"os"
	"runtime"
	"strings"
)

// CPUInfo describes a host's processors.
type CPUInfo struct {
	Model string // "unknown" if the kernel doesn't say
	Cores int    // online, whether or not this process may use them
}

// ReadCPUInfo asks the kernel what processors the host has.
func ReadCPUInfo() CPUInfo {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return CPUInfo{Model: cpuModel(), Cores: runtime.NumCPU()}
	}
	return parseCPUInfo(string(text))
}

// parseCPUInfo reads the text of /proc/cpuinfo. Kernels for arm64 give only a part's number for a name.
func parseCPUInfo(text string) CPUInfo {
	i := CPUInfo{Model: "unknown"}
	model := func(key string) bool {
		for line := range strings.Lines(text) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				i.Model = strings.TrimSpace(v)
				return true
			}
		}
		return false
	}
	_ = model("model name") || model("CPU part")
	for line := range strings.Lines(text) {
		if k, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "processor" {
			i.Cores++
		}
	}
	i.Cores = max(i.Cores, 1)
	return i
}
