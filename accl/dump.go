package accl

import (
	"fmt"
	"strings"

	"github.com/chorus-comms/chorus/accl/abi"
)

// DumpExchangeMemory shows the words of exchange memory, but for rows of zeros.
func (d *Driver) DumpExchangeMemory() (string, error) {
	words, err := d.load(0, abi.ExchangeSize/4)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("exchange mem:\n")
	const row = 8
	for at := 0; at < len(words); at += row {
		zero := true
		for _, w := range words[at : at+row] {
			zero = zero && w == 0
		}
		if !zero {
			fmt.Fprintf(&b, "0x%04x:", 4*at)
			for _, w := range words[at : at+row] {
				fmt.Fprintf(&b, " %08x", w)
			}
			b.WriteString("\n")
		}
	}
	return b.String(), nil
}

// DumpRXBuffers shows the first n RX buffers, and what is in them if data says so.
func (d *Driver) DumpRXBuffers(n int, data bool) (string, error) {
	var b strings.Builder
	head, err := d.load(0, 2)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "number of RX buffers: %d\nsize of each: %d\n", head[0], head[1])
	for i := range min(n, len(d.rx)) {
		words, err := d.load(abi.RXDescriptorAt(i), abi.RXWords)
		if err != nil {
			return "", err
		}
		x := abi.ParseRXDescriptor([abi.RXWords]uint32(words))
		fmt.Fprintf(&b, "RX buffer %d: %v, addr %#x, tag %#x, len %d, src %d, seq %d\n", i, x.Status, x.Addr, x.Tag, x.Len,
			x.Src, x.Seq)
		if data && x.Status == abi.RXReserved {
			if err := d.rx[i].SyncFromDevice(); err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "  % x\n", d.rx[i].bytes[:min(int(x.Len), len(d.rx[i].bytes))])
		}
	}
	return b.String(), nil
}

// Dump shows a communicator.
func (c *Communicator) Dump() (string, error) {
	t, err := c.Table()
	if err != nil {
		return "", err
	}
	return t.String(), nil
}
