package shm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/fabric"
)

// options are the fabric's settings.
type options struct {
	wait    string // auto, spin, yield, block
	reading bool   // read across processes where the kernel permits it
	mapping bool   // map the segments that peers' buffers lie in
}

// CheckOptions reports what is wrong with values for Config.Options, if anything.
func CheckOptions(set map[string]string) error {
	_, err := parseOptions(set)
	return err
}

// OptionNames lists the settings that Config.Options may hold.
func OptionNames() []string { return []string{"cma", "map", "wait"} }

// endless is a number of turns that no wait reaches.
const endless = 1 << 60

func parseOptions(set map[string]string) (options, error) {
	o := options{wait: "auto", reading: true, mapping: true}
	for name, v := range set {
		var allowed []string
		switch name {
		case "wait":
			allowed = []string{"auto", "spin", "yield", "block"}
			o.wait = v
		case "cma":
			allowed = []string{"auto", "off"}
			o.reading = v == "auto"
		case "map":
			allowed = []string{"auto", "off"}
			o.mapping = v == "auto"
		default:
			return o, fmt.Errorf("shm: unknown option %q; have %s", name, strings.Join(OptionNames(), ", "))
		}
		if !slices.Contains(allowed, v) {
			return o, fmt.Errorf("shm: option %s is %q; it can be %s", name, v, strings.Join(allowed, ", "))
		}
	}
	return o, nil
}

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
