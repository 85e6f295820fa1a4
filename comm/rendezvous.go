package comm

import (
	"context"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/store"
)

// The store of a launcher's job is opened once per process, however many
// communicators find each other through it: rank 0 serves it, and others may
// still need it when the first communicator ends.
var shared struct {
	sync.Mutex
	open map[string]store.Store
}

func openShared(ctx context.Context, info bootstrap.Info, opts bootstrap.Options) (store.Store, error) {
	key := info.Key()
	shared.Lock()
	defer shared.Unlock()
	if st := shared.open[key]; st != nil {
		return st, nil
	}
	st, err := bootstrap.Open(ctx, info, opts)
	if err != nil {
		return nil, err
	}
	if shared.open == nil {
		shared.open = map[string]store.Store{}
	}
	shared.open[key] = st
	return st, nil
}

// linger bounds how long the rank that serves the store waits, before it leaves,
// for others that are still on their way in.
const linger = 5 * time.Second

// completeRendezvous says that this rank has a communicator, and needs its store no more.
func completeRendezvous(ctx context.Context, m *bootstrap.Rendezvous) error {
	st := m.Store()
	n, err := st.Add(ctx, "ready", 1)
	if err != nil || n != int64(m.Size) {
		return err
	}
	if err := st.Set(ctx, "all_ready", nil); err != nil || m.Again {
		return err
	}
	return m.Complete(ctx)
}

// leave is called when a communicator that met at a launcher's store ends. The
// store stays open for the next one; but the rank that may be serving it does not go
// while others still need it.
func leave(st store.Store, rank int) error {
	if rank != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	if err := st.Wait(ctx, "all_ready"); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// leaveRefused is called by a rank whose backend can't serve the world that has met. As a rule all ranks are told so as
// they meet: the one that serves the store doesn't go while others still read that.
func leaveRefused(ctx context.Context, m *bootstrap.Rendezvous, host int) {
	ctx, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	st := m.Store()
	n, err := st.Add(ctx, "refused", 1)
	switch {
	case err != nil: // the backend's error is the one to report
	case n == int64(m.Size):
		_ = st.Set(ctx, "all_refused", nil)
	case m.Rank == host:
		_ = st.Wait(ctx, "all_refused")
	}
}
