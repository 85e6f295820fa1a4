package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// options are the fabric's settings. All ranks must agree on connections.
type options struct {
	ifaces      []string      // "interface": names of network interfaces, or their networks; the first that is there
	addr        netip.Addr    // "addr": IP address to bind and publish
	advertise   []netip.Addr  // "advertise": IP addresses to publish instead of the bound one
	portLow     int           // "ports": "low-high", where to listen; any free port by default
	portHigh    int           //
	connections int           // "connections": for the bytes of large messages, per pair
	eager       int           // "eager": largest message, in bytes, that is sent with its announcement
	window      int           // "window": bytes that a peer may send without having been asked for them
	heartbeat   time.Duration // "heartbeat": how long a peer may be silent; 0: for ever
	buffer      int           // "buffer": bytes of a socket's buffers; 0 leaves them to the kernel
}

const (
	maxConnections = 16
	maxEager       = 1 << 20
)

func defaults() options {
	return options{connections: 2, eager: 64 << 10, window: 8 << 20, heartbeat: 10 * time.Second}
}

// table says how each option is set.
func (o *options) table() fabric.Options {
	return fabric.Options{
		"interface": func(v string) (err error) {
			o.ifaces, err = words(v)
			return err
		},
		"addr": func(v string) (err error) {
			if v != "" {
				o.addr, err = netip.ParseAddr(v)
			}
			return err
		},
		"advertise": func(v string) (err error) {
			o.advertise, err = addresses(v)
			return err
		},
		"ports": func(v string) error {
			low, high, ok := strings.Cut(v, "-")
			if !ok {
				high = low
			}
			if err := fabric.Number(&o.portLow, 1, 65535)(low); err != nil {
				return err
			}
			return fabric.Number(&o.portHigh, o.portLow, 65535)(high)
		},
		"connections": fabric.Number(&o.connections, 1, maxConnections),
		"eager":       fabric.Number(&o.eager, 0, maxEager),
		"window":      fabric.Number(&o.window, 0, 1<<30),
		"buffer":      fabric.Number(&o.buffer, 0, 1<<30),
		"heartbeat": func(v string) (err error) {
			o.heartbeat, err = time.ParseDuration(v)
			if err == nil && o.heartbeat != 0 && o.heartbeat < time.Millisecond {
				err = errors.New("want 0 or at least 1ms")
			}
			return err
		},
	}
}

// words splits a list at its commas.
func words(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	all := strings.Split(list, ",")
	for i := range all {
		if all[i] = strings.TrimSpace(all[i]); all[i] == "" {
			return nil, errors.New("an entry of the list is empty")
		}
	}
	return all, nil
}

func addresses(list string) ([]netip.Addr, error) {
	all, err := words(list)
	var parsed []netip.Addr
	for _, w := range all {
		a, aerr := netip.ParseAddr(w)
		if aerr == nil && (a.IsUnspecified() || a.IsMulticast()) {
			aerr = fmt.Errorf("%s: no rank can connect to it", w)
		}
		if aerr != nil {
			return nil, aerr
		}
		parsed = append(parsed, a.Unmap())
	}
	return parsed, err
}
