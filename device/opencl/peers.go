package opencl

import (
	"sync"

	"github.com/chorus-comms/chorus/device/driver"
)

// peers has, at [dev * devices + peer], whether the driver lets dev touch the memory of peer.
type peers struct {
	mu     sync.Mutex
	access []bool
}

// PeerCapable is [driver.Peers].PeerCapable: devices of a platform share their virtual memory.
func (d *Driver) PeerCapable(dev, peer int) (bool, error) {
	for _, i := range []int{dev, peer} {
		if err := d.knows("peer capability", i); err != nil {
			return false, err
		}
	}
	b, p := d.devs[dev], d.devs[peer]
	return dev != peer && b.space == p.space && b.svm != 0 && p.svm != 0, nil
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
	return dev == peer || d.peers.access[dev*len(d.devs)+peer]
}

// SetPeerAccess is [driver.Peers].SetPeerAccess.
func (d *Driver) SetPeerAccess(dev, peer int, enabled bool) error {
	const op = "set peer access"
	capable, err := d.PeerCapable(dev, peer)
	switch {
	case err != nil:
		return err
	case dev == peer:
		return driver.Errorf(driver.ErrWrongDevice, d.devs[dev].name, op, "device %d is no peer of itself", dev)
	case enabled && !capable:
		return driver.Errorf(driver.ErrUnsupported, d.devs[dev].name, op, "%s can't touch memory of %s", d.devs[dev].name,
			d.devs[peer].name)
	}
	d.peers.mu.Lock()
	defer d.peers.mu.Unlock()
	d.peers.access[dev*len(d.devs)+peer] = enabled
	return nil
}
