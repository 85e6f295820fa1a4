package shm

import "github.com/chorus-comms/chorus/fabric"

// options are the fabric's settings.
type options struct {
	wait    string // auto, spin, yield, block
	cma     string // auto: read across processes where the kernel permits it; off
	mapping string // auto: map the segments that peers' buffers lie in; off
}

func defaults() options { return options{wait: "auto", cma: "auto", mapping: "auto"} }

// table says how each option is set.
func (o *options) table() fabric.Options {
	return fabric.Options{
		"wait": fabric.OneOf(&o.wait, "auto", "spin", "yield", "block"),
		"cma":  fabric.OneOf(&o.cma, "auto", "off"),
		"map":  fabric.OneOf(&o.mapping, "auto", "off"),
	}
}

// endless is a number of turns that no wait reaches.
const endless = 1 << 60

// maps reports whether peers' segments are mapped.
func (o options) maps() bool { return o.mapping != "off" }

// policy says how waits spend their time on a host with that many ranks and cores for them.
func (o options) policy(locals, cores int) fabric.Policy {
	switch o.wait {
	case "spin":
		return fabric.Policy{Spins: fabric.SpinPolicy.Spins, Yields: endless}
	case "yield":
		return fabric.Policy{Yields: endless}
	case "block":
		return fabric.BlockPolicy
	}
	return fabric.PolicyFor(locals, cores)
}
