package shm

// Control implements fabric.Messenger.
func (f *Fabric) Control(peer int, payload []byte) error {
	if err := f.Addressed(peer, payload); err != nil {
		return err
	}
	if peer == f.rank {
		f.Hand(f.rank, payload)
		return nil
	}
	p, err := f.peer(peer)
	if err != nil {
		return err
	}
	if err := p.failure(); err != nil {
		return err
	}
	return p.link.send(fields{Kind: frameControl}.encode(payload), -1)
}
