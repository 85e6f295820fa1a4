package gpu

import (
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

func (d *Driver) both(op string, dev, peer int) (b, p *gpu, err error) {
	if b, err = d.gpu(op, dev); err == nil {
		p, err = d.gpu(op, peer)
	}
	return b, p, err
}

// PeerCapable is [driver.Peers].PeerCapable.
func (d *Driver) PeerCapable(dev, peer int) (bool, error) {
	const op = "peer capability"
	if err := d.Knows(op, dev, peer); err != nil {
		return false, err
	}
	if dev == peer {
		return false, nil
	}
	b, can := d.gpus[dev], new(int32) // no context is needed for it
	err := b.result(op, "DeviceCanAccessPeer", b.CanAccessPeer(can, b.id, d.gpus[peer].id))
	return *can != 0, err
}

// SetPeerAccess is [driver.Peers].SetPeerAccess. Others in the process may have set it as well, which is no error.
func (d *Driver) SetPeerAccess(dev, peer int, enabled bool) error {
	b, p, err := d.both("set peer access", dev, peer)
	if err != nil {
		return err
	}
	capable, err := d.PeerCapable(dev, peer)
	if err != nil {
		return err
	}
	b.asked[peer].Store(true)
	return d.SetPeer(dev, peer, enabled, capable, func(op string) error {
		call, already := "EnablePeerAccess", abi.PeerAccessEnabled
		f := func() abi.Result { return b.EnablePeer(p.peerRef(), 0) }
		if !enabled {
			call, already = "DisablePeerAccess", abi.PeerAccessNotEnabled
			f = func() abi.Result { return b.DisablePeer(p.peerRef()) }
		}
		if r := b.relaxed(f); r != already {
			return b.result(op, call, r)
		}
		return nil
	})
}

// meet gives a GPU access to the memory of another one, if it can have it, at their first copy: copies between them
// then don't go by the host. A call of SetPeerAccess before decides.
func (d *Driver) meet(b *gpu, peer int) {
	if peer == b.Index || b.asked[peer].Swap(true) {
		return
	}
	if can, err := d.PeerCapable(b.Index, peer); err == nil && can {
		_ = d.SetPeerAccess(b.Index, peer, true) // without it the library copies by the host
	}
}
