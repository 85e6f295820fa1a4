package engine

import (
	"fmt"
	"sync/atomic"

	"github.com/chorus-comms/chorus/accl/abi"
)

// exchange is the memory that an engine shares with its driver.
type exchange struct {
	words [abi.ExchangeSize / 4]atomic.Uint32
}

func (x *exchange) load(addr uint32) uint32     { return x.words[addr/4].Load() }
func (x *exchange) store(addr uint32, v uint32) { x.words[addr/4].Store(v) }

// from copies the words from an address on, so many at most; none if there's no such address.
func (x *exchange) from(addr uint32, most int) []uint32 {
	if addr%4 != 0 || addr >= abi.ExchangeSize {
		return nil
	}
	words := make([]uint32, min(most, len(x.words)-int(addr/4)))
	for i := range words {
		words[i] = x.load(addr + uint32(4*i))
	}
	return words
}

// Read returns a word of exchange memory.
func (e *Engine) Read(addr uint32) (uint32, error) {
	if err := valid(addr); err != nil {
		return 0, err
	}
	return e.exch.load(addr), nil
}

// Write sets a word of exchange memory. The number of RX buffers, written last, puts them to use.
func (e *Engine) Write(addr, value uint32) error {
	if err := valid(addr); err != nil {
		return err
	}
	e.exch.store(addr, value)
	if addr == abi.NumRXBuffers {
		e.inbox.enqueue(value)
	}
	return nil
}

func valid(addr uint32) error {
	if addr%4 != 0 || addr >= abi.ExchangeSize {
		return fmt.Errorf("no word of exchange memory: %#x", addr)
	}
	return nil
}

// communicator is one that a call names.
type communicator struct {
	abi.Communicator
	base uint32 // in exchange memory
	id   uint32
}

func (e *Engine) communicator(addr uint32) *communicator {
	size := e.exch.from(addr, 1)
	if size == nil {
		return nil
	}
	ranks := min(size[0], abi.ExchangeSize/4/abi.RankWords)
	c, err := abi.ParseCommunicator(e.exch.from(addr, abi.CommHead+abi.RankWords*int(ranks)))
	if err != nil {
		return nil
	}
	return &communicator{c, addr, c.ID()}
}

// seq returns the place of a rank's number of inbound or outbound messages.
func (c *communicator) seq(rank, word int) uint32 {
	return c.base + uint32(4*(abi.CommHead+abi.RankWords*rank+word))
}

func (c *communicator) size() int { return len(c.Ranks) }
