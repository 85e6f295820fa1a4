package gloo

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// meshes are a group's: one for each interface, which operations take in turn by their numbers, and messages by their
// tags. They're a base.Link.
type meshes []*mesh

// connect connects the ranks of a group by all interfaces.
func (j *job) connect(ctx context.Context, path string, rank, size int) (ms meshes, err error) {
	if size == 1 {
		return meshes{newMesh(rank, size)}, nil
	}
	connect := connect
	if j.old {
		connect = connectPairs
	}
	for i, host := range j.hosts {
		m, err := connect(ctx, store.NewPrefix(fmt.Sprint(path, j.device, i), j.store), rank, size, host, j.tls)
		if err != nil {
			ms.close(ctx)
			return nil, err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// meshOf returns the mesh of a slot.
func (ms meshes) meshOf(slot uint64) *mesh {
	if collective(slot) {
		slot = uint64(tagOf(slot))
	}
	return ms[slot%uint64(len(ms))]
}

// Send implements base.Link.
func (ms meshes) Send(m *fabric.Msg) { ms.meshOf(m.Key.Tag).Send(m) }

// Recv implements base.Link.
func (ms meshes) Recv(m *fabric.Msg) { ms.meshOf(m.Key.Tag).Recv(m) }

// Wait implements base.Link.
func (ms meshes) Wait(m *fabric.Msg, w *fabric.Waiter) error { return ms.meshOf(m.Key.Tag).Wait(m, w) }

// Cancel implements base.Link.
func (ms meshes) Cancel(m *fabric.Msg) { ms.meshOf(m.Key.Tag).Cancel(m) }

// loss is the end of a pair.
type loss struct {
	peer  int
	since time.Time
	why   error
}

// culprit returns the peer that was lost first of those that were lost at about the time of one: a rank that fails
// because of another one closes its pairs, too.
func (ms meshes) culprit(peer int) (int, error) {
	var all []loss
	for _, m := range ms {
		all = append(all, m.losses()...)
	}
	slices.SortStableFunc(all, func(a, b loss) int { return a.since.Compare(b.since) })
	at := slices.IndexFunc(all, func(l loss) bool { return l.peer == peer })
	first := slices.IndexFunc(all, func(l loss) bool { return l.since.After(all[at].since.Add(-cascade)) })
	return all[first].peer, all[first].why
}

// cascade is how soon after a rank's loss the others that wait for it have given up.
const cascade = time.Second

// kill closes all pairs: there's no other way to report a failure to PyTorch's ranks.
func (ms meshes) kill(why error) {
	for _, m := range ms {
		m.kill(why)
	}
}

// close ends the meshes, after everything queued was written.
func (ms meshes) close(ctx context.Context) {
	for _, m := range ms {
		m.close(ctx)
	}
}
