package abi

import (
	"fmt"
	"strings"
)

// Protocol is how engines speak to each other.
type Protocol uint32

// The protocols. Only RDMA has rendezvous.
const (
	UDP Protocol = iota
	TCP
	RDMA
)

var protocols = [...]string{"udp", "tcp", "cyt_rdma"}

// String returns the name that the emulator's command line has for it.
func (p Protocol) String() string {
	if int(p) < len(protocols) {
		return protocols[p]
	}
	return fmt.Sprintf("protocol(%d)", uint32(p))
}

// ParseProtocol is the other way round.
func ParseProtocol(name string) (Protocol, error) {
	for p, n := range protocols {
		if n == name {
			return Protocol(p), nil
		}
	}
	return 0, fmt.Errorf("unknown protocol %q; there are %s", name, strings.Join(protocols[:], ", "))
}

// HWID says what an engine is made of.
type HWID uint32

// The parts of an engine.
const (
	HasDMA HWID = 4 << iota
	HasArith
	HasCompression
	HasKernelStreams
	HasDebug
	HasExternalDMA
)

// Protocol returns the engine's protocol.
func (h HWID) Protocol() Protocol { return Protocol(h & 3) }

// String lists the parts.
func (h HWID) String() string {
	parts := []string{h.Protocol().String()}
	for _, p := range []struct {
		bit  HWID
		name string
	}{{HasDMA, "internal DMA"}, {HasArith, "arithmetic"}, {HasCompression, "compression"},
		{HasKernelStreams, "kernel streams"}, {HasDebug, "debug"}, {HasExternalDMA, "external DMA"}} {
		if h&p.bit != 0 {
			parts = append(parts, p.name)
		}
	}
	return fmt.Sprintf("%s, commit %06x", strings.Join(parts, ", "), uint32(h>>8))
}
