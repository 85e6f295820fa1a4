package abi

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/internal/dl/libfile"
)

// Candidates are where libucp may be, in the order in which they're tried: what the dynamic linker finds, Python's
// packages (libucx-cu12, for example), NVIDIA's HPC-X. Some are patterns.
func Candidates() []string {
	return append(append([]string{"libucp.so.0"}, libfile.InWheels("libucx/lib/libucp.so.0")...),
		"/opt/hpcx*/ucx/lib/libucp.so.0", "/opt/ucx/lib/libucp.so.0")
}

// Found is a libucp on this machine, as its files say.
type Found struct {
	Path       string
	Version    string   // empty if the file doesn't say
	Transports []string // families of transports that the build has: "ib", "cuda"; those of libuct itself aren't listed
	Err        error    // why it can't be used; nil if it seems that it can
}

// Find returns the libraries that there are, without loading any. The fabric takes the first.
func Find(more ...string) (all []Found) {
	for _, path := range libfile.Find(append(slices.Clone(more), Candidates()...)...) {
		all = append(all, inspect(path))
	}
	return all
}

// versionText is what ucp_get_version_string returns.
var versionText = regexp.MustCompile(`(1\.[0-9]+\.[0-9]+)\x00`)

func inspect(path string) Found {
	f := Found{Path: path}
	file, err := elf.Open(path)
	if err != nil {
		f.Err = err
		return f
	}
	defer file.Close()
	defined, err := libfile.Defined(file)
	if err == nil && !defined["ucp_tag_send_nbx"] {
		err = fmt.Errorf("it lacks ucp_tag_send_nbx, which came with UCX 1.10")
	}
	f.Err = err
	if ro := file.Section(".rodata"); ro != nil {
		if data, err := ro.Data(); err == nil {
			if found := versionText.FindSubmatch(data); found != nil {
				f.Version = string(found[1])
			}
		}
	}
	modules, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "ucx", "libuct_*.so.0"))
	for _, m := range modules {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m), "libuct_"), ".so.0")
		f.Transports = append(f.Transports, name)
	}
	return f
}

// RDMADevices are the names of the devices of the machine that speak verbs.
func RDMADevices() (names []string) {
	entries, _ := os.ReadDir("/sys/class/infiniband") // there is none without such devices
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
