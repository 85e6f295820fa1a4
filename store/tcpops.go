package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// wireKey is how a key of the public interface looks on the wire.
func wireKey(k string) string { return "/" + k }

func wireKeys(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = wireKey(k)
	}
	return out
}

// Set implements Store.
func (s *TCPStore) Set(ctx context.Context, key string, value []byte) error {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	return s.call(ctx, "set", false, func(c *clientConn) error {
		return c.confirmed(&request{op: opSet, keys: []string{wireKey(key)}, values: [][]byte{value}})
	})
}

// Get implements Store.
func (s *TCPStore) Get(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	var v []byte
	err := s.call(ctx, "get", false, func(c *clientConn) (err error) {
		if err = s.waitOn(ctx, c, "get", []string{wireKey(key)}); err == nil {
			v, err = c.value(&request{op: opGet, keys: []string{wireKey(key)}})
		}
		return err
	})
	return v, err
}

// Add implements Store.
func (s *TCPStore) Add(ctx context.Context, key string, delta int64) (int64, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	return s.add(ctx, wireKey(key), delta)
}

func (s *TCPStore) add(ctx context.Context, wire string, delta int64) (int64, error) {
	var n int64
	err := s.call(ctx, "add", delta != 0, func(c *clientConn) (err error) {
		n, err = c.number(&request{op: opAdd, keys: []string{wire}, number: delta})
		return err
	})
	return n, err
}

// Wait implements Store.
func (s *TCPStore) Wait(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	wire := wireKeys(keys)
	return s.call(ctx, "wait", false, func(c *clientConn) error {
		return s.waitOn(ctx, c, "wait", wire)
	})
}

// waitOn waits for keys, given as they are on the wire, and if ctx ends says
// which of them were missing.
func (s *TCPStore) waitOn(ctx context.Context, c *clientConn, op string, keys []string) error {
	begin := time.Now()
	err := c.wait(ctx, &request{op: opWait, keys: keys})
	if !errors.Is(err, errCancelled) {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ended(ctx, op, begin, len(keys), nil, nil)
	}
	missing, cause := s.findMissing(c, keys)
	return ended(ctx, op, begin, len(keys), stripPrefix(slices.Clone(missing), "/"), cause)
}

// findMissing asks which keys are missing, after the deadline of the call: on c,
// or if that is broken, on a connection of its own.
func (s *TCPStore) findMissing(c *clientConn, keys []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), graceTime)
	defer cancel()
	if c.broken {
		var err error
		if c, err = s.connectOnce(ctx); err != nil {
			return nil, fmt.Errorf("the server does not say which of %d keys are missing: %w", len(keys), err)
		}
		defer c.nc.Close()
	}
	c.nc.SetDeadline(time.Now().Add(graceTime))
	missing, err := c.missing(keys)
	if err != nil {
		return nil, fmt.Errorf("the server does not say which of %d keys are missing: %w", len(keys), err)
	}
	return missing, nil
}

// Check implements Store.
func (s *TCPStore) Check(ctx context.Context, keys ...string) (bool, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if len(keys) == 0 {
		return true, nil
	}
	var b byte
	err := s.call(ctx, "check", false, func(c *clientConn) (err error) {
		if err = c.send(&request{op: opCheck, keys: wireKeys(keys)}); err == nil {
			b, err = c.in.u8()
		}
		return err
	})
	return err == nil && b == replyReady, err // ready is 0, and so is what was never read
}

// CompareSet implements Store.
func (s *TCPStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	var v []byte
	err := s.call(ctx, "compare_set", true, func(c *clientConn) (err error) {
		v, err = c.value(&request{op: opCompareSet, keys: []string{wireKey(key)}, values: [][]byte{expected, desired}})
		return err
	})
	return v, err
}

// Delete implements Store.
func (s *TCPStore) Delete(ctx context.Context, key string) (bool, error) {
	n, err := s.number(ctx, true, &request{op: opDelete, keys: []string{wireKey(key)}})
	return n != 0, err
}

// NumKeys implements Store.
func (s *TCPStore) NumKeys(ctx context.Context) (int64, error) {
	return s.number(ctx, false, &request{op: opNumKeys})
}

func (s *TCPStore) number(ctx context.Context, once bool, r *request) (int64, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	var n int64
	err := s.call(ctx, r.op.String(), once, func(c *clientConn) (err error) {
		n, err = c.number(r)
		return err
	})
	return n, err
}

// Append implements Extended.
func (s *TCPStore) Append(ctx context.Context, key string, value []byte) error {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	return s.call(ctx, "append", true, func(c *clientConn) error {
		return c.confirmed(&request{op: opAppend, keys: []string{wireKey(key)}, values: [][]byte{value}})
	})
}

// MultiGet implements Extended. Many keys take several requests, so that no
// answer becomes large.
func (s *TCPStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if len(keys) == 0 {
		return nil, nil
	}
	wire := wireKeys(keys)
	if err := s.call(ctx, "multi_get", false, func(c *clientConn) error {
		return s.waitOn(ctx, c, "multi_get", wire)
	}); err != nil {
		return nil, err
	}
	const batch = 4096
	values := make([][]byte, 0, len(keys))
	for part := range slices.Chunk(wire, batch) {
		before := len(values)
		err := s.call(ctx, "multi_get", false, func(c *clientConn) error {
			values = values[:before] // the call may be a second attempt
			err := c.send(&request{op: opMultiGet, keys: part})
			for range part {
				if err != nil {
					return err
				}
				var v []byte
				v, err = c.in.value()
				values = append(values, v)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

// MultiSet implements Extended.
func (s *TCPStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	if err := sameLength(keys, values); err != nil || len(keys) == 0 {
		return err
	}
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	return s.call(ctx, "multi_set", false, func(c *clientConn) error {
		return c.confirmed(&request{op: opMultiSet, keys: wireKeys(keys), values: values})
	})
}

// QueuePush implements Extended.
func (s *TCPStore) QueuePush(ctx context.Context, key string, value []byte) error {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.require(ctx, opQueuePush); err != nil {
		return err
	}
	return s.call(ctx, "queue_push", true, func(c *clientConn) error {
		return c.confirmed(&request{op: opQueuePush, keys: []string{wireKey(key)}, values: [][]byte{value}})
	})
}

// QueuePop implements Extended. Another client may be faster after the wait; then
// it waits again.
func (s *TCPStore) QueuePop(ctx context.Context, key string) ([]byte, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.require(ctx, opQueuePop); err != nil {
		return nil, err
	}
	for {
		if err := s.call(ctx, "queue_pop", false, func(c *clientConn) error {
			return s.waitOn(ctx, c, "queue_pop", []string{wireKey(key)})
		}); err != nil {
			return nil, err
		}
		var v []byte
		var n int64
		err := s.call(ctx, "queue_pop", true, func(c *clientConn) (err error) {
			if n, err = c.number(&request{op: opQueuePop, keys: []string{wireKey(key)}}); err == nil && n > 0 {
				v, err = c.in.value()
			}
			return err
		})
		if err != nil || n > 0 {
			return v, err
		}
	}
}

// QueueLen implements Extended.
func (s *TCPStore) QueueLen(ctx context.Context, key string) (int64, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.require(ctx, opQueueLen); err != nil {
		return 0, err
	}
	return s.number(ctx, false, &request{op: opQueueLen, keys: []string{wireKey(key)}})
}

// ListKeys implements Extended. Keys that no client set, such as "init/", are
// left out.
func (s *TCPStore) ListKeys(ctx context.Context) ([]string, error) {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.require(ctx, opListKeys); err != nil {
		return nil, err
	}
	var keys []string
	err := s.call(ctx, "list_keys", false, func(c *clientConn) error {
		n, err := c.number(&request{op: opListKeys})
		keys = nil
		for range n {
			if err != nil {
				return err
			}
			var k string
			k, err = c.in.key()
			keys = append(keys, k)
		}
		return err
	})
	keys = stripPrefix(keys, "/")
	slices.Sort(keys)
	return keys, err
}

// Barrier implements Extended. After a timeout this caller stays counted.
func (s *TCPStore) Barrier(ctx context.Context, key string, size int) error {
	ctx, cancel := deadline(ctx, s.opts.Timeout)
	defer cancel()
	if err := s.require(ctx, opBarrier); err != nil {
		return err
	}
	begin := time.Now()
	return s.call(ctx, "barrier", true, func(c *clientConn) error {
		err := c.wait(ctx, &request{op: opBarrier, keys: []string{wireKey(key)}, number: int64(size)})
		if errors.Is(err, errCancelled) {
			c.broken = true // older servers do not cancel barriers
			return ended(ctx, "barrier", begin, 0, nil, fmt.Errorf("fewer than %d callers came to %q", size, key))
		}
		return err
	})
}

// probes are harmless requests by which a client finds out whether the server
// knows an operation: one that does not closes the connection.
var probes = map[opcode]*request{
	opQueuePush: {op: opQueueLen, keys: []string{"/"}},
	opQueuePop:  {op: opQueueLen, keys: []string{"/"}},
	opQueueLen:  {op: opQueueLen, keys: []string{"/"}},
	opListKeys:  {op: opListKeys},
	opBarrier:   {op: opListKeys}, // they came together; a barrier would leave a key
}

// require returns an error that wraps errors.ErrUnsupported if the server lacks
// an extended operation. It asks once, on a connection of its own.
func (s *TCPStore) require(ctx context.Context, op opcode) error {
	probe := probes[op]
	s.mu.Lock()
	lacks, known := s.lacks[probe.op]
	s.mu.Unlock()
	if !known {
		if _, ok := s.dialect.encode(probe.op); ok {
			c, err := s.connect(ctx, op.String(), s.opts.Reconnect)
			if err != nil {
				return err
			}
			release := c.guard(ctx)
			_, err = c.number(probe)
			release()
			c.nc.Close()
			if err != nil && ctx.Err() != nil {
				return ended(ctx, op.String(), time.Now(), 0, nil, err)
			}
			lacks = err != nil
			if lacks && !closedByPeer(err) {
				return &ConnError{Op: op.String(), Addr: s.addr, Err: err}
			}
		} else {
			lacks = true
		}
		s.mu.Lock()
		s.lacks[probe.op] = lacks
		s.mu.Unlock()
	}
	if lacks {
		return unsupported(op.String(), "the server at "+s.addr)
	}
	return nil
}

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err)
}
