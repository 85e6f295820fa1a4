// Package cpuinfo says what processor a host has, in the kernel's words.
//
//	cpu := cpuinfo.Read() // {Model: "AMD EPYC", Cores: 2}
package cpuinfo

import (
	"os"
	"runtime"
	"strings"
)

// Info describes a host's processors.
type Info struct {
	Model string // "unknown" if the kernel doesn't say
	Cores int    // online, whether or not this process may use them
}

// Read asks the kernel.
func Read() Info {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return Info{Model: model(), Cores: runtime.NumCPU()}
	}
	return parse(string(text))
}

// parse reads the text of /proc/cpuinfo. Kernels for arm64 give only a part's number for a name.
func parse(text string) Info {
	i := Info{Model: "unknown"}
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
