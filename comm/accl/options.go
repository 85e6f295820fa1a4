package accl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/card"
	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/fabric"
)

// options are the hints of a communicator.
type options struct {
	protocol abi.Protocol
	network  string // the fabric between engines, or packets; "": the process, or what CHORUS_FABRIC says
	config   accl.Config
	segment  int // bytes of a message at most
	emulator int // where the ports of emulators begin; 0: engines are in their ranks' processes
	card     string
}

// compress is the hint of an operation that says how its elements go over the wire.
var compress = backend.OpHint{Name: "accl.compress", Check: func(v string) error {
	if v != abi.Float16.String() && v != abi.None.String() {
		return fmt.Errorf("hint accl.compress=%q: it's float16 or none", v)
	}
	return nil
}}

// The defaults of engines, where there is no hint. Small operations are eager, and go in one message.
const (
	rxBuffers         = 16
	rxBufferSize      = 16 << 10
	maxEagerSize      = 16 << 10
	maxRendezvousSize = 1 << 20
)

// onCard says why a card with a design isn't a rank's engine: what the card lacks, or the backend.
func onCard(design string) string {
	c, err := card.OpenXRT(card.XRT{Xclbin: design})
	if err == nil {
		err = errors.Join(errors.New("the card is there, but the streams of its kernels, by which ranks send each other "+
			"messages, don't reach the host; package accl drives the card without a communicator"), c.Close())
	}
	return fmt.Sprintf("hint accl.card=%q: %v", design, err)
}

// packets is the network of engines of one process that send each other packets of their protocol.
const packets = "packets"

func optionsOf(hints map[string]string) (options, error) {
	o := options{protocol: abi.RDMA, config: accl.Config{RXBuffers: rxBuffers, RXBufferSize: rxBufferSize,
		MaxEagerSize: maxEagerSize, MaxRendezvousSize: maxRendezvousSize,
		Tuning: accl.Tuning{DirectRanks: maxWorld}}}
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
		"accl.p2p": func(v string) error {
			if o.config.Staged = v == "off"; !o.config.Staged && v != "on" {
				return fmt.Errorf("it's on or off")
			}
			return nil
		},
		"accl.network": func(v string) error {
			o.network = v
			if v == packets {
				return nil
			}
			_, err := fabric.Lookup(v)
			return err
		},
		"accl.card": func(v string) error {
			o.card = v
			return nil
		},
		"accl.rx_buffers":          number(&o.config.RXBuffers),
		"accl.rx_buffer_size":      number(&o.config.RXBufferSize),
		"accl.max_eager_size":      number(&o.config.MaxEagerSize),
		"accl.max_rendezvous_size": number(&o.config.MaxRendezvousSize),
		"accl.max_segment_size":    number(&o.segment),
		"accl.emulator":            number(&o.emulator),
	}
	for name, value := range hints {
		f := set[name]
		if f == nil {
			return o, fmt.Errorf("unknown hint %q; %s has %q, and %s for each operation", name, Name,
				slices.Sorted(maps.Keys(set)), compress.Name)
		}
		if err := f(value); err != nil {
			return o, fmt.Errorf("hint %s=%q: %w", name, value, err)
		}
	}
	return o, nil
}
