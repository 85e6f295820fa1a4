package ucx

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
	"github.com/chorus-comms/chorus/fabric/ucx/abi"
)

// sysfs is another folder in tests.
var sysfs = abi.Sysfs

func init() { transport.Prefer(transport.Preference{Name: Name, Look: look, Listen: listenFast}) }

// look says why the fabric is none for "auto" on this machine, without loading UCX.
func look(c fabric.Config) error {
	if c.Security.TLS != nil {
		return errPlain
	}
	cfg, _ := config.Load(nil) // errors are other settings'
	return abi.Seems(sysfs, cfg.UCXLibrary)
}

// listenFast makes an endpoint, unless UCX sees no network that is faster than TCP.
func listenFast(ctx context.Context, c fabric.Config) (transport.Endpoint, error) {
	e, err := listen(ctx, c)
	if err != nil {
		return nil, err
	}
	all, err := e.(*endpoint).f.w.resources()
	if err == nil && !slices.ContainsFunc(all, Resource.fast) {
		names := make([]string, len(all))
		for i, r := range all {
			names[i] = r.String()
		}
		err = fmt.Errorf("ucx: no transport is faster than TCP; UCX sees %s", strings.Join(names, ", "))
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}
