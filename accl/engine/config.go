package engine

import "github.com/chorus-comms/chorus/accl/abi"

// config carries out a call that sets up the engine. Resets don't come here: Start does them at once.
func (c *Call) config() {
	e := c.engine
	switch abi.ConfigFunction(c.Function) {
	case abi.Enable:
		e.enabled.Store(true)
	case abi.SetTimeout: // nothing here has one of its own
	case abi.SetMaxEagerSize:
		if c.Count < e.exch.load(abi.RXBufferSize) {
			c.fail(abi.EagerThresholdInvalid)
			return
		}
		e.maxEager.Store(c.Count)
	case abi.SetMaxRendezvousSize:
		if c.Count <= e.maxEager.Load() {
			c.fail(abi.RendezvousThresholdInvalid)
			return
		}
		e.maxRendezvous.Store(c.Count)
	default:
		c.fail(abi.CollectiveNotImplemented)
	}
}
