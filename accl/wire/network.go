package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/engine"
	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
)

// network is how an emulated engine reaches the others: it publishes packets under the session that they are for, and
// subscribes to its own with all.
type network struct {
	rank     int
	world    int
	protocol abi.Protocol
	log      *slog.Logger

	mu  sync.Mutex // packets of a message follow each other
	pub *zmtp.Pub
	sub *zmtp.Sub
}

var _ engine.Network = (*network)(nil)

// topic is how packets for a session are marked.
func topic(session int) string { return fmt.Sprintf("%04d", session) }

func at(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// Send implements engine.Network.
func (n *network) Send(session uint32, h *abi.Header, payload []byte) error {
	return n.publish(session, packets(n.protocol, h, payload))
}

// Write implements engine.Network.
func (n *network) Write(session uint32, addr uint64, host bool, data []byte) error {
	return n.publish(session, writes(addr, host, uint16(session), data))
}

func (n *network) publish(session uint32, packets [][]byte) error {
	if int64(session) >= int64(n.world) {
		return fmt.Errorf("no engine has session %d", session)
	}
	to, from := []byte(topic(int(session))), []byte(strconv.Itoa(n.rank))
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range packets {
		if err := n.pub.Send(to, from, encodePayload(p)); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until all engines have subscribed: what is published before doesn't reach them.
func (n *network) ready(ctx context.Context) error {
	for {
		all := true
		for r := range n.world {
			all = all && n.pub.Subscribed(topic(r))
		}
		if all {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not all engines have come: %w", context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

// receive gives an engine what the others send, until the socket is closed.
func (n *network) receive(e *engine.Engine) {
	from := make([]assembler, n.world)
	for r := range from {
		from[r].protocol = n.protocol
	}
	for {
		frames, err := n.sub.Recv()
		if errors.Is(err, zmtp.ErrClosed) {
			return
		}
		if err != nil { // one of the engines has ended
			n.log.Warn("an engine has gone", "rank", n.rank, "err", err)
			continue
		}
		if err := deliver(e, from, frames); err != nil {
			n.log.Warn("a packet is dropped", "rank", n.rank, "err", err)
		}
	}
}

// deliver takes a packet's frames: receiver, sender, and contents.
func deliver(e *engine.Engine, from []assembler, frames [][]byte) error {
	if len(frames) != 3 {
		return fmt.Errorf("%d frames", len(frames))
	}
	sender, err := strconv.Atoi(string(frames[1]))
	if err != nil || sender < 0 || sender >= len(from) {
		return fmt.Errorf("it's of rank %.20q", frames[1])
	}
	b, err := decodePayload(frames[2])
	if err != nil {
		return err
	}
	a, err := from[sender].take(b)
	switch {
	case err != nil:
		return err
	case a.write:
		return e.Memory.Write(a.addr, a.host, a.data).Err()
	case a.message != nil:
		e.Receive(uint32(sender), a.message, a.data)
	}
	return nil
}
