package tcp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// options are the fabric's settings. All ranks must agree on connections.
type options struct {
	ifaces      []string      // "interface": names of network interfaces or their networks, the first that is there is used
	addr        netip.Addr    // "addr": IP address to bind and publish
	advertise   []netip.Addr  // "advertise": IP addresses to publish in place of the bound one, behind a translation of addresses
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

// CheckOptions reports options that don't exist or have a wrong value.
func CheckOptions(o map[string]string) error {
	_, err := parseOptions(o)
	return err
}

func parseOptions(given map[string]string) (options, error) {
	o := defaults()
	var errs []error
	for _, k := range slices.Sorted(maps.Keys(given)) {
		v := given[k]
		var err error
		switch k {
		case "interface":
			o.ifaces, err = words(v)
		case "addr":
			if v != "" {
				o.addr, err = netip.ParseAddr(v)
			}
		case "advertise":
			o.advertise, err = addresses(v)
		case "ports":
			low, high, ok := strings.Cut(v, "-")
			if !ok {
				high = low
			}
			if o.portLow, err = number(low, 1, 65535); err == nil {
				o.portHigh, err = number(high, o.portLow, 65535)
			}
		case "connections":
			o.connections, err = number(v, 1, maxConnections)
		case "eager":
			o.eager, err = number(v, 0, maxEager)
		case "window":
			o.window, err = number(v, 0, 1<<30)
		case "buffer":
			o.buffer, err = number(v, 0, 1<<30)
		case "heartbeat":
			if o.heartbeat, err = time.ParseDuration(v); err == nil && o.heartbeat != 0 && o.heartbeat < time.Millisecond {
				err = errors.New("want 0 or at least 1ms")
			}
		default:
			err = errors.New("unknown; known are addr, advertise, buffer, connections, eager, heartbeat, interface, ports, window")
		}
		if err != nil {
			errs = append(errs, &fabric.ConfigError{Err: fmt.Errorf("tcp: option %s=%q: %w", k, v, err)})
		}
	}
	return o, errors.Join(errs...)
}

func number(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("want a number from %d to %d", low, high)
	}
	return n, nil
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
			aerr = fmt.Errorf("%s: nobody can connect to it", w)
		}
		if aerr != nil {
			return nil, aerr
		}
		parsed = append(parsed, a.Unmap())
	}
	return parsed, err
}
