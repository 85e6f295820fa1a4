package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/kern"
)

type hostFacts struct {
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	ID     string `json:"id"` // ranks that agree in it share this host
}

type cpuFacts struct {
	Model            string     `json:"model"`
	Online           int        `json:"online"`
	Usable           int        `json:"usable"`
	Affinity         string     `json:"affinity"`
	CgroupCores      float64    `json:"cgroup_cores"` // 0: no limit
	NUMA             []numaNode `json:"numa"`
	Kernels          string     `json:"kernels"`
	KernelsAvailable []string   `json:"kernels_available"`
}

type numaNode struct {
	ID          int    `json:"id"`
	Cores       string `json:"cores"`
	MemoryBytes int64  `json:"memory_bytes"`
}

type memoryFacts struct {
	TotalBytes        int64  `json:"total_bytes"`
	AvailableBytes    int64  `json:"available_bytes"`
	CgroupBytes       int64  `json:"cgroup_bytes"` // 0: no limit
	HugePageBytes     int64  `json:"huge_page_bytes"`
	HugePages         int64  `json:"huge_pages"`
	HugePagesFree     int64  `json:"huge_pages_free"`
	TransparentShared string `json:"transparent_shared"`
}

type networkFacts struct {
	Loopback   string           `json:"loopback"`
	Interfaces []interfaceFacts `json:"interfaces"`
}

type interfaceFacts struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	MTU       int      `json:"mtu"`
	Up        bool     `json:"up"`
}

// diagnose examines everything.
func diagnose(ctx context.Context) *diagnosis {
	d := &diagnosis{Version: readVersion(), Problems: []string{}, Warnings: []string{}}
	d.host()
	d.cpu()
	d.memory()
	d.sharedMemory(ctx)
	d.network()
	d.launcher()
	d.calibration()
	d.libraries()
	d.ucx()
	d.settings()
	return d
}

func (d *diagnosis) host() {
	d.Host.Name, _ = os.Hostname()
	d.Host.ID, _ = bootstrap.HostID()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		d.Host.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
}

func (d *diagnosis) cpu() {
	c := &d.CPU
	c.Model = sys.ReadCPUInfo().Model
	online, _ := sys.ParseCPUs(readText("/sys/devices/system/cpu/online"))
	c.Online = len(online)
	if c.Online == 0 { // no /sys
		c.Online = runtime.NumCPU()
	}
	usable, _ := sys.AllowedCPUs()
	c.Usable, c.Affinity = len(usable), usable.String()
	c.CgroupCores = cgroupCores("/")
	if c.CgroupCores > 0 && c.CgroupCores < 1 {
		d.warn("the cgroup allows less than one core (%.4g): ranks will be stopped in the middle of operations",
			c.CgroupCores)
	}
	c.Kernels, c.KernelsAvailable = kern.Level(), kern.Levels()
	nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	for _, dir := range nodes {
		id, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "node"))
		n := numaNode{ID: id, Cores: readText(dir + "/cpulist")}
		for line := range strings.Lines(readText(dir + "/meminfo")) {
			if f := strings.Fields(line); len(f) >= 4 && f[2] == "MemTotal:" {
				n.MemoryBytes = kibibytes(f[3])
			}
		}
		c.NUMA = append(c.NUMA, n)
	}
	slices.SortFunc(c.NUMA, func(a, b numaNode) int { return a.ID - b.ID })
}

func (d *diagnosis) memory() {
	m := &d.Memory
	for line := range strings.Lines(readText("/proc/meminfo")) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			m.TotalBytes = kibibytes(f[1])
		case "MemAvailable:":
			m.AvailableBytes = kibibytes(f[1])
		case "HugePages_Total:":
			m.HugePages, _ = strconv.ParseInt(f[1], 10, 64)
		case "HugePages_Free:":
			m.HugePagesFree, _ = strconv.ParseInt(f[1], 10, 64)
		case "Hugepagesize:":
			m.HugePageBytes = kibibytes(f[1])
		}
	}
	if m.TotalBytes == 0 { // no /proc
		m.AvailableBytes, m.TotalBytes, _ = sys.HostMemory()
	}
	m.CgroupBytes = cgroupMemory("/", m.TotalBytes)
	m.TransparentShared = "not offered"
	if text := readText("/sys/kernel/mm/transparent_hugepage/shmem_enabled"); text != "" {
		_, chosen, _ := strings.Cut(text, "[")
		chosen, _, _ = strings.Cut(chosen, "]")
		m.TransparentShared = chosen
	}
}

func (d *diagnosis) network() {
	n := &d.Network
	n.Loopback = "works"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l, err = net.Listen("tcp", "[::1]:0")
	}
	if err != nil {
		n.Loopback = err.Error()
		d.problem("no connection within this host is possible: %v", err)
	} else {
		l.Close()
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		d.warn("network interfaces cannot be listed: %v", err)
	}
	for _, i := range interfaces {
		f := interfaceFacts{Name: i.Name, MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, Addresses: []string{}}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			f.Addresses = append(f.Addresses, a.String())
		}
		n.Interfaces = append(n.Interfaces, f)
	}
}

// readText returns a file's text without the space around it; a file that cannot be read has none.
func readText(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

func kibibytes(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n << 10
}
