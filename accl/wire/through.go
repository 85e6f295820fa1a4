package wire

import (
	"sync"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
)

// Through returns a network whose messages go over another one as packets of a protocol would bring them: each is cut
// into packets, and put together from them.
func Through(net engine.Network, p abi.Protocol) engine.Network {
	return &through{Network: net, protocol: p, to: map[uint32]*outward{}}
}

type through struct {
	engine.Network
	protocol abi.Protocol

	mu sync.Mutex
	to map[uint32]*outward
}

// outward is the packets to one engine.
type outward struct {
	sync.Mutex // of one message
	assembler
}

// Send implements engine.Network.
func (t *through) Send(session uint32, h *abi.Header, payload []byte) error {
	return t.bring(session, packets(t.protocol, h, payload))
}

// Write implements engine.Network.
func (t *through) Write(session uint32, addr uint64, host bool, data []byte) error {
	return t.bring(session, writes(addr, host, uint16(session), data))
}

func (t *through) bring(session uint32, packets [][]byte) error {
	t.mu.Lock()
	to := t.to[session]
	if to == nil {
		to = &outward{assembler: assembler{protocol: t.protocol}}
		t.to[session] = to
	}
	t.mu.Unlock()
	to.Lock()
	defer to.Unlock()
	for _, p := range packets {
		a, err := to.take(p)
		switch {
		case err != nil:
		case a.write:
			err = t.Network.Write(session, a.addr, a.host, a.data)
		case a.message != nil:
			err = t.Network.Send(session, a.message, a.data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
