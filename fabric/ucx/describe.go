package ucx

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/chorus-comms/chorus/internal/dl"
)

// Description is what UCX sees on this machine.
type Description struct {
	Library   string // its name, version and file
	Version   string
	Resources []Resource
}

// Resource is a transport over a device.
type Resource struct{ Transport, Device string }

func (r Resource) String() string { return r.Transport + "/" + r.Device }

// Describe opens UCX and asks it. The error says why it can't be used.
func Describe() (Description, error) {
	l, err := open()
	if err != nil {
		return Description{}, err
	}
	d := Description{Library: l.file.String(), Version: l.file.Version()}
	w, err := newWorker(1, nil)
	if err != nil {
		return d, fmt.Errorf("ucx: %v: %w", l.file, err)
	}
	defer w.close()
	d.Resources, err = w.resources()
	return d, err
}

// resources lists the transports and devices that the worker may use.
func (w *worker) resources() (all []Resource, err error) {
	text, err := w.print()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		// #      resource 1  :  md 1  dev 1  flags -- tcp/lo
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[1] != "resource" {
			continue
		}
		if transport, device, ok := strings.Cut(fields[len(fields)-1], "/"); ok {
			all = append(all, Resource{transport, device})
		}
	}
	return all, nil
}

// Fast reports whether one of the transports is of a network that is faster than TCP.
func (d Description) Fast() bool { return slices.ContainsFunc(d.Resources, Resource.fast) }

// fastTransports are the beginnings of the names of those that use RDMA: InfiniBand's and RoCE's connected, dynamically
// connected and unreliable datagrams, AWS's scalable datagrams, Cray's networks.
var fastTransports = []string{"rc", "dc", "ud", "srd", "ugni"}

func (r Resource) fast() bool {
	return slices.ContainsFunc(fastTransports, func(family string) bool {
		rest, ok := strings.CutPrefix(r.Transport, family)
		return ok && (rest == "" || rest[0] == '_')
	})
}

// stdio are functions of the C library, for a text that UCX prints into a FILE.
type stdio struct {
	Open  dl.Func `dl:"open_memstream"`
	Close dl.Func `dl:"fclose"`
	Free  dl.Func `dl:"free"`
}

// print returns what UCX prints of the worker's context.
func (w *worker) print() (string, error) {
	libc, err := dl.Source{Name: "the C library", Candidates: []string{"libc.so.6", "libc.so"}}.Open()
	if err != nil {
		return "", err
	}
	var c stdio
	if _, err := libc.Resolve(&c); err != nil {
		return "", err
	}
	text, n := heap((*byte)(nil)), heap(uintptr(0))
	file := c.Open.Call(word(text), word(n))
	if file == 0 {
		return "", fmt.Errorf("ucx: open_memstream failed")
	}
	w.PrintInfo.Call(w.context, file)
	c.Close.Call(file)
	defer c.Free.Call(uintptr(unsafe.Pointer(*text)))
	return strings.Clone(unsafe.String(*text, int(*n))), nil
}
