package abi

import (
	"errors"
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
	file, err := libfile.Open(path)
	if err != nil {
		f.Err = err
		return f
	}
	defer file.Close()
	defined, err := file.Defined()
	if err == nil && !defined["ucp_tag_send_nbx"] {
		err = fmt.Errorf("it lacks ucp_tag_send_nbx, which came with UCX 1.10")
	}
	f.Err = err
	if found := versionText.FindSubmatch(file.Constants()); found != nil {
		f.Version = string(found[1])
	}
	modules, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "ucx", "libuct_*.so.0"))
	for _, m := range modules {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m), "libuct_"), ".so.0")
		f.Transports = append(f.Transports, name)
	}
	return f
}

// Sysfs is where Linux lists the devices that speak verbs.
const Sysfs = "/sys/class/infiniband"

// RDMADevice is a device that speaks verbs: an adapter for InfiniBand, RoCE or iWARP.
type RDMADevice struct {
	Name   string `json:"name"`
	Active bool   `json:"active"` // one of its ports has a link
}

// RDMADevices lists those of the machine, as the kernel describes them in sysfs, which is Sysfs except in tests.
func RDMADevices(sysfs string) (all []RDMADevice) {
	entries, _ := os.ReadDir(sysfs) // there is none without such devices
	for _, e := range entries {
		d := RDMADevice{Name: e.Name()}
		states, _ := filepath.Glob(filepath.Join(sysfs, e.Name(), "ports", "*", "state"))
		for _, file := range states {
			state, _ := os.ReadFile(file) // "4: ACTIVE"
			number, _, _ := strings.Cut(string(state), ":")
			d.Active = d.Active || number == "4"
		}
		all = append(all, d)
	}
	return all
}

// Seems says why the fabric isn't one that "auto" takes on this machine, or nil if it seems that it is: a device has
// an active port, and there's a library. The library is the file that the user names; "" stands for the first one that
// is found. It loads nothing.
func Seems(sysfs, library string) error {
	devices := RDMADevices(sysfs)
	switch {
	case len(devices) == 0:
		return errors.New("there's no RDMA device")
	case !slices.ContainsFunc(devices, func(d RDMADevice) bool { return d.Active }):
		return errors.New("no port of an RDMA device is active")
	}
	places := Candidates()
	if library != "" {
		places = []string{library}
	}
	if len(libfile.Find(places...)) == 0 {
		return errors.New("UCX's library isn't installed")
	}
	return nil
}
