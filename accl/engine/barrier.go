package engine

import "github.com/chorus-comms/chorus/accl/abi"

// barrier waits for all ranks: they tell rank 0, which then tells them. Notifications say it, with every protocol.
func (c *Call) barrier() {
	if c.me() != 0 {
		c.notify(0, abi.RendezvousAddress, 0, operand{})
		c.awaitOffer(0, nil, nil)
		return
	}
	for r := 1; r < c.size(); r++ {
		c.awaitOffer(r, nil, nil)
	}
	for r := 1; r < c.size(); r++ {
		c.notify(r, abi.RendezvousAddress, 0, operand{})
	}
}
