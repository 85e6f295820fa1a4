package gpu

import (
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/abi"
)

// peers has, at [dev * devices + peer], whether the driver lets dev touch the memory of peer.
type peers struct {
	mu     sync.Mutex
	access []bool
}

func (d *Driver) both(op string, dev, peer int) (b, p *gpu, err error) {
	if b, err = d.gpu(op, dev); err == nil {
		p, err = d.gpu(op, peer)
	}
	return b, p, err
}

// PeerCapable is [driver.Peers].PeerCapable.
func (d *Driver) PeerCapable(dev, peer int) (bool, error) {
	const op = "peer capability"
	for _, i := range []int{dev, peer} {
		if err := d.knows(op, i); err != nil {
			return false, err
		}
	}
	if dev == peer {
		return false, nil
	}
	b, can := d.gpus[dev], new(int32) // no context is needed for it
	err := b.result(op, "DeviceCanAccessPeer", b.CanAccessPeer(can, b.id, d.gpus[peer].id))
	return *can != 0, err
}

// PeerAccess is [driver.Peers].PeerAccess.
func (d *Driver) PeerAccess(dev, peer int) (bool, error) {
	for _, i := range []int{dev, peer} {
		if err := d.knows("peer access", i); err != nil {
			return false, err
		}
	}
	return d.reaches(dev, peer), nil
}

func (d *Driver) reaches(dev, peer int) bool {
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	return dev == peer || d.peers.access[dev*len(d.gpus)+peer]
}

// SetPeerAccess is [driver.Peers].SetPeerAccess. Others in the process may have set it as well, which is no error.
func (d *Driver) SetPeerAccess(dev, peer int, enabled bool) error {
	const op = "set peer access"
	b, p, err := d.both(op, dev, peer)
	if err != nil {
		return err
	}
	if dev == peer {
		return driver.Errorf(driver.ErrWrongDevice, b.name, op, "device %d is no peer of itself", dev)
	}
	if capable, err := d.PeerCapable(dev, peer); err != nil {
		return err
	} else if enabled && !capable {
		return driver.Errorf(driver.ErrUnsupported, b.name, op, "%s can't touch memory of %s", b.name, p.name)
	}
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	call, already := "EnablePeerAccess", abi.PeerAccessEnabled
	f := func() abi.Result { return b.EnablePeer(p.peerRef(), 0) }
	if !enabled {
		call, already = "DisablePeerAccess", abi.PeerAccessNotEnabled
		f = func() abi.Result { return b.DisablePeer(p.peerRef()) }
	}
	if r := b.relaxed(f); r != already {
		if err := b.result(op, call, r); err != nil {
			return err
		}
	}
	d.peers.access[dev*len(d.gpus)+peer] = enabled
	return nil
}
