package engine

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/accl/abi"
)

// Memory is what an engine can reach: regions of the device's memory and of the host's. Its methods may be called from
// any goroutine.
type Memory struct {
	mu     sync.RWMutex
	spaces [2]space // the device's, the host's
}

type space struct {
	regions []*region // by address
	next    uint64    // address of the next region
}

// region is mapped memory.
type region struct {
	addr  uint64
	bytes []byte
	users atomic.Int64 // data movers that are in it
}

// granule is what regions are apart at least, and aligned to.
const granule = 4096

// Map gives the engine memory, and returns its address, which is never used again. The caller keeps it alive until
// Unmap. host says in which of the two spaces the address is.
func (m *Memory) Map(b []byte, host bool) (addr uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.space(host)
	s.next = max(s.next, granule) // nothing is at 0
	addr = s.next
	m.add(s, addr, b)
	return addr
}

// MapAt is Map for an address of the caller's choice, with nothing at it or behind it yet.
func (m *Memory) MapAt(addr uint64, b []byte, host bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.space(host)
	s.next = max(s.next, addr)
	m.add(s, addr, b)
}

func (m *Memory) add(s *space, addr uint64, b []byte) {
	s.regions = append(s.regions, &region{addr: addr, bytes: b})
	s.next = addr + (uint64(len(b))+granule-1)/granule*granule + granule
}

// Unmap takes the memory away that begins at an address, as soon as no data mover is in it.
func (m *Memory) Unmap(addr uint64, host bool) {
	m.mu.Lock()
	s := m.space(host)
	i, found := s.find(addr)
	if !found {
		m.mu.Unlock()
		return
	}
	r := s.regions[i]
	s.regions = slices.Delete(s.regions, i, i+1)
	m.mu.Unlock()
	for pause := time.Microsecond; r.users.Load() > 0; pause *= 2 {
		time.Sleep(min(pause, time.Millisecond))
	}
}

func (m *Memory) space(host bool) *space {
	if host {
		return &m.spaces[1]
	}
	return &m.spaces[0]
}

func (s *space) find(addr uint64) (int, bool) {
	return slices.BinarySearchFunc(s.regions, addr, func(r *region, a uint64) int { return cmp.Compare(r.addr, a) })
}

// at returns n bytes at an address, until the region is released; nil if there's no such memory.
func (m *Memory) at(addr uint64, n int, host bool) ([]byte, *region) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.space(host)
	i, found := s.find(addr)
	if !found {
		i--
	}
	if i < 0 {
		return nil, nil
	}
	r := s.regions[i]
	off := addr - r.addr
	if off > uint64(len(r.bytes)) || uint64(n) > uint64(len(r.bytes))-off {
		return nil, nil
	}
	r.users.Add(1)
	return r.bytes[off : off+uint64(n) : off+uint64(n)], r
}

// Pin returns n bytes at an address, which Unmap leaves alone until release is called; nil if there's no such memory.
func (m *Memory) Pin(addr uint64, n int, host bool) (b []byte, release func()) {
	b, r := m.at(addr, n, host)
	if r == nil {
		return nil, nothing
	}
	return b, r.release
}

func (r *region) release() { r.users.Add(-1) }

// Read copies memory of the engine.
func (m *Memory) Read(addr uint64, host bool, into []byte) abi.Status {
	b, r := m.at(addr, len(into), host)
	if r == nil {
		return abi.DMADecode
	}
	defer r.release()
	copy(into, b)
	return 0
}

// Write copies into memory of the engine.
func (m *Memory) Write(addr uint64, host bool, from []byte) abi.Status {
	b, r := m.at(addr, len(from), host)
	if r == nil {
		return abi.DMADecode
	}
	defer r.release()
	copy(b, from)
	return 0
}

// Alloc returns zeroed memory for the engine and others, aligned to a cache line.
func Alloc(n int) []byte {
	const line = 64
	words := make([]uint64, (n+line)/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (line - 1)
	return b[skip : skip+n : skip+n]
}
