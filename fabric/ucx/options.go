package ucx

import (
	"errors"
	"time"

	"github.com/chorus-comms/chorus/fabric"
)

// options are the fabric's settings.
type options struct {
	eager      int
	window     int
	heartbeat  time.Duration
	errors     string
	transports string
	devices    string
}

const maxEager = 64 << 10

func defaults() options {
	return options{eager: 16 << 10, window: 4 << 20, heartbeat: 10 * time.Second, errors: "peer"}
}

// table says how each option is set.
func (o *options) table() fabric.Options {
	return fabric.Options{
		"eager":  fabric.Number(&o.eager, 0, maxEager),
		"window": fabric.Number(&o.window, 0, 1<<30),
		"errors": fabric.OneOf(&o.errors, "peer", "none"),
		"heartbeat": func(v string) (err error) {
			o.heartbeat, err = time.ParseDuration(v)
			if err == nil && o.heartbeat != 0 && o.heartbeat < time.Millisecond {
				err = errors.New("want 0 or at least 1ms")
			}
			return err
		},
		"transports": func(v string) error { o.transports = v; return nil },
		"devices":    func(v string) error { o.devices = v; return nil },
	}
}
