package opencl

// PeerCapable is [driver.Peers].PeerCapable: devices of a platform share their virtual memory.
func (d *Driver) PeerCapable(dev, peer int) (bool, error) {
	if err := d.Knows("peer capability", dev, peer); err != nil {
		return false, err
	}
	b, p := d.devs[dev], d.devs[peer]
	return dev != peer && b.space == p.space && b.svm != 0 && p.svm != 0, nil
}

// SetPeerAccess is [driver.Peers].SetPeerAccess.
func (d *Driver) SetPeerAccess(dev, peer int, enabled bool) error {
	capable, err := d.PeerCapable(dev, peer)
	if err != nil {
		return err
	}
	return d.SetPeer(dev, peer, enabled, capable, nil)
}
