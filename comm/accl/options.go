package accl

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/fabric"
)

// options are the hints of a communicator.
type options struct {
	protocol abi.Protocol
	compress bool   // float32 goes over the wire as float16
	network  string // the fabric between engines; "": the process, or what CHORUS_FABRIC says
	config   accl.Config
}

// What engines are set up with where no hint says otherwise. Small operations are eager, and go in one message.
const (
	rxBuffers         = 16
	rxBufferSize      = 16 << 10
	maxEagerSize      = 16 << 10
	maxRendezvousSize = 1 << 20
)

func optionsOf(hints map[string]string) (options, error) {
	o := options{protocol: abi.RDMA, config: accl.Config{RXBuffers: rxBuffers, RXBufferSize: rxBufferSize,
		MaxEagerSize: maxEagerSize, MaxRendezvousSize: maxRendezvousSize,
		Tuning: accl.Tuning{AllreduceDirectRanks: maxWorld}}}
	number := func(n *int) func(string) error {
		return func(v string) (err error) {
			*n, err = strconv.Atoi(v)
			if err == nil && *n < 1 {
				err = fmt.Errorf("it's positive")
			}
			return err
		}
	}
	set := map[string]func(string) error{
		"accl.protocol": func(v string) (err error) {
			o.protocol, err = abi.ParseProtocol(v)
			return err
		},
		"accl.compress": func(v string) error {
			if o.compress = v == "float16"; !o.compress && v != "none" {
				return fmt.Errorf("it's float16 or none")
			}
			return nil
		},
		"accl.network": func(v string) error {
			_, err := fabric.Lookup(v)
			o.network = v
			return err
		},
		"accl.rx_buffers":          number(&o.config.RXBuffers),
		"accl.rx_buffer_size":      number(&o.config.RXBufferSize),
		"accl.max_eager_size":      number(&o.config.MaxEagerSize),
		"accl.max_rendezvous_size": number(&o.config.MaxRendezvousSize),
	}
	for name, value := range hints {
		f := set[name]
		if f == nil {
			return o, fmt.Errorf("unknown hint %q; %s has %q", name, Name, slices.Sorted(maps.Keys(set)))
		}
		if err := f(value); err != nil {
			return o, fmt.Errorf("hint %s=%q: %w", name, value, err)
		}
	}
	return o, nil
}
