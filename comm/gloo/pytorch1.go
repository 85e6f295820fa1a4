package gloo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/store"
)

// PyTorch 1.13 has the same frames as later ones. Its ranks connect differently: under other keys, and with one
// listener for each peer instead of one at which connecting ranks send their number. And all ranks of the job wait for
// each other when a group is made.

// oldPyTorch reports whether a version of PyTorch is 1.13.
func oldPyTorch(version string) (bool, error) {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	switch {
	case n == 2 && major == 1 && minor == 13:
		return true, nil
	case n == 2 && (major == 2 && minor >= 2 || major > 2):
		return false, nil
	}
	return false, fmt.Errorf("hint %s=%q: ranks of PyTorch 1.13 and of 2.2 and later are known", pytorchHint, version)
}

// attempt is the prefix under which torchrun of PyTorch 1.13 has the keys of an attempt, if it serves the store.
func attempt() string {
	if os.Getenv("TORCHELASTIC_USE_AGENT_STORE") != "True" {
		return ""
	}
	return "/worker/attempt_" + os.Getenv("TORCHELASTIC_RESTART_COUNT") + "/"
}

// wrongVersionHint adds to the error about missing ranks that one of them is of another version of PyTorch than the
// hint says.
func (j *job) wrongVersionHint(err error) error {
	absent, ok := errors.AsType[*bootstrap.MissingRanksError](err)
	if !ok || len(absent.Missing) == 0 {
		return err
	}
	key, version := fmt.Sprint("0/0/rank_", absent.Missing[0]), "1.13"
	if j.old {
		key, version = fmt.Sprint("0//cpu//0/", absent.Missing[0]), "2.2"
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if there, _ := j.store.Check(ctx, key); there {
		return fmt.Errorf("%w: rank %d waits where ranks of other versions of PyTorch meet: hint %s=%s", err,
			absent.Missing[0], pytorchHint, version)
	}
	return err
}

// newGroup numbers a call of new_group, and returns where its ranks meet.
func (j *job) newGroup() string {
	j.groups++
	if j.old {
		return strconv.Itoa(j.groups)
	}
	return fmt.Sprintf("%s/%d/", j.root, j.groups)
}

// meet waits for all ranks of the job, as PyTorch 1.13 does when a group is made, members or not. A group's first rank
// sets the number from which the others count its operations, for their logs; g is nil unless this rank is a member.
func (j *job) meet(ctx context.Context, g *group) error {
	key := fmt.Sprint("store_based_barrier_key:", j.groups+1)
	start := time.Now()
	came, err := j.store.Add(ctx, key, 1)
	for err == nil && came < int64(j.world) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d ranks have made the group in %v: %w", came, j.world,
				time.Since(start).Round(time.Millisecond), ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
		came, err = j.store.Add(ctx, key, 0)
	}
	if err == nil && g != nil && g.rank == 0 && g.size > 1 {
		err = j.store.Set(ctx, g.path+"/SEQ_NUM_STORE_KEY", make([]byte, 8))
	}
	return err
}

// connectPairs is connect for PyTorch 1.13, whose ranks know each other by the listener that a connection comes to.
func connectPairs(ctx context.Context, st store.Store, rank, size int, host string,
	_ *tls.Config) (_ *mesh, err error) {
	m := newMesh(rank, size)
	listeners := make([]net.Listener, size) // by who may connect there
	var accepting sync.WaitGroup
	defer func() {
		for _, l := range listeners {
			if l != nil {
				l.Close()
			}
		}
		accepting.Wait()
		if err != nil {
			m.close(ctx)
		}
	}()
	addrs := make([]address, size)
	var all []byte
	for r := range size {
		if r == rank {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, err
		}
		listeners[r], addrs[r] = l, address{at: l.Addr().(*net.TCPAddr).AddrPort(), seq: -1}
		all = addrs[r].append(all)
	}
	name, _ := os.Hostname()
	if err := st.Set(ctx, fmt.Sprint("rank_", rank), []byte(name)); err != nil {
		return nil, err
	}
	records, err := m.exchange(ctx, st, all)
	if err != nil {
		return nil, err
	}
	await := map[*pair]bool{}
	failed := make(chan error, size)
	for r, p := range m.pairs {
		if r == rank {
			continue
		}
		theirs, err := addressFor(records[r], r, rank, size)
		if err == nil {
			err = alike(addrs[r], theirs)
		}
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
		if await[p] = true; addrs[r].dials(theirs) {
			go func() { failed <- p.dial(ctx, theirs, nil) }()
			continue
		}
		accepting.Go(func() {
			if conn, err := listeners[r].Accept(); err == nil {
				p.attach(conn)
			}
		})
	}
	return m, m.complete(ctx, await, failed)
}

// addressFor is the address at which a rank listens for another one, of all that it has published.
func addressFor(record []byte, of, who, size int) (address, error) {
	if len(record) != addressBytes*(size-1) {
		return address{}, fmt.Errorf("a record of %d bytes for a world of %d: is it another PyTorch than the hint %s says?",
			len(record), size, pytorchHint)
	}
	if who > of {
		who--
	}
	return parseAddress(record[addressBytes*who : addressBytes*(who+1)])
}
