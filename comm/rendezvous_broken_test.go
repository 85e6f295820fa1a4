package comm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// Real processes of which one sends what is no frame, and ones whose store dies.

func init() {
	programs["garbled"] = garbled
	programs["store"] = serveStore
	programs["store dies in New"] = func() error { return withoutStore(true) }
	programs["store dies"] = func() error { return withoutStore(false) }
}

// garbled is a rank of three, of which the culprit writes a broken frame to each of its links and then waits, alive,
// until the others have told that they have lost it.
func garbled() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	st, err := store.DialTCP(ctx, os.Getenv("CHORUS_TEST_STORE"), store.TCPOptions{})
	if err != nil {
		return err
	}
	defer st.Close()
	c, err := join(ctx)
	if err != nil {
		return err
	}
	// Each has spoken to each, so that all links are up.
	ones := tensor.Must(tensor.Full(dtype.Int32, 1, 3*c.Size()))
	if err := c.AllToAllSingle(ctx, tensor.Must(tensor.Empty(dtype.Int32, 3*c.Size())), ones); err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if err := st.Set(ctx, fmt.Sprintf("met/%d", c.Rank()), nil); err != nil {
		return err
	}
	if c.Rank() == culprit {
		if err := st.Wait(ctx, "met/0", "met/2"); err != nil {
			return err
		}
		n, err := breakFrames(os.Getenv("CHORUS_TEST_BREAK") == "truncated")
		if err != nil || n == 0 {
			return fmt.Errorf("%d links were broken: %w", n, err)
		}
		return st.Wait(ctx, "told/0", "told/2")
	}
	err = c.Barrier(ctx)
	var lost *comm.PeerLostError
	if !errors.As(err, &lost) || lost.Peer != culprit {
		return fmt.Errorf("not lost by a broken frame: %w", err)
	}
	fmt.Printf("lost %d: %v\n", lost.Peer, err)
	if err := st.Set(ctx, fmt.Sprintf("told/%d", c.Rank()), nil); err != nil {
		return err
	}
	return st.Wait(ctx, "told/0", "told/2") // who ends before is lost as well to one that hasn't got its frame yet
}

// breakFrames writes to each socket of this process that is connected to another rank: one frame of which a bit was
// flipped, or the beginning of one, after which nothing comes. It returns how many there were.
func breakFrames(truncated bool) (n int, err error) {
	_, port, err := net.SplitHostPort(os.Getenv("CHORUS_TEST_STORE"))
	if err != nil {
		return 0, err
	}
	at, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	for fd := range 256 {
		peer, err := unix.Getpeername(fd)
		if err != nil {
			continue
		}
		frame := make([]byte, 80)
		switch p := peer.(type) {
		case *unix.SockaddrInet4:
			if p.Port == at {
				continue
			}
			frame[0], frame[1], frame[2] = 'C', 'H', 10 // a ping
		case *unix.SockaddrInet6:
			if p.Port == at {
				continue
			}
			frame[0], frame[1], frame[2] = 'C', 'H', 10
		case *unix.SockaddrUnix:
			frame = frame[:16]
		default:
			continue
		}
		if truncated {
			frame = frame[:len(frame)/2]
		} else {
			frame[0] ^= 0x20
		}
		_, err = unix.Write(fd, frame)
		if err == nil && truncated {
			err = unix.Shutdown(fd, unix.SHUT_WR)
		}
		switch {
		case err == nil:
			n++
		case n == 0: // else the first who got one may have told the others already, and the library closed its end
			return n, err
		}
	}
	return n, nil
}

func TestGarbled(t *testing.T) {
	for _, fabric := range []string{"tcp", "shm"} {
		for _, how := range []string{"flipped", "truncated"} {
			t.Run(fabric+"/"+how, func(t *testing.T) {
				t.Setenv("CHORUS_TEST_BREAK", how)
				cmds, outs := start(t, "garbled", fabric, 3)
				for r, cmd := range cmds {
					if err := cmd.Wait(); err != nil {
						t.Errorf("rank %d: %v\n%s", r, err, outs[r])
					}
					t.Logf("rank %d: %s", r, outs[r])
				}
			})
		}
	}
}

// serveStore is a process that serves a store until it's killed.
func serveStore() error {
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("store at %s;\n", server.Addr())
	select {}
}

// startStore starts such a process. kill ends it.
func startStore(t *testing.T) (addr string, kill func()) {
	t.Helper()
	cmds, outs := start(t, "store", "", 1)
	if !outs[0].wait(";", 60*time.Second) {
		t.Fatalf("there is no store: %s", outs[0])
	}
	_, addr, _ = strings.Cut(strings.TrimSpace(outs[0].String()), "store at ")
	return strings.TrimSuffix(addr, ";"), func() {
		cmds[0].Process.Kill()
		cmds[0].Wait()
	}
}

// withoutStore is a rank of three whose store is killed: while they wait there in New for the culprit, who never comes;
// or when they have met, after which the culprit is killed, too.
func withoutStore(joining bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if joining && os.Getenv("CHORUS_TEST_RANK") == strconv.Itoa(culprit) {
		return nil
	}
	if joining {
		// A rank that never reached a store waits for one to come up: only a store that was reached
		// can be lost.
		st, err := store.DialTCP(ctx, os.Getenv("CHORUS_TEST_STORE"), store.TCPOptions{})
		if err != nil {
			return err
		}
		defer st.Close()
		fmt.Println("joining")
		me, err := strconv.Atoi(os.Getenv("CHORUS_TEST_RANK"))
		if err != nil {
			return err
		}
		_, err = comm.New(ctx, comm.WithStore(st), comm.WithRank(me, 3), comm.WithFabric("shm"),
			comm.WithTimeout(50*time.Second))
		if broke, ok := errors.AsType[*store.ConnError](err); ok {
			fmt.Printf("store %s is gone: %v\n", broke.Addr, err)
			return nil
		}
		gone, ok := errors.AsType[*store.DialError](err) // it's tried again for a few seconds
		if !ok {
			return fmt.Errorf("neither a *store.ConnError nor a *store.DialError: %w", err)
		}
		fmt.Printf("store %s is gone: %v\n", gone.Addr, err)
		return nil
	}
	c, err := join(ctx)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := untilBroken(ctx, c, false); err != nil {
		return err
	}
	if c, err = c.Regroup(ctx); err != nil {
		return err
	}
	if err := sums(ctx, c); err != nil {
		return err
	}
	fmt.Printf("survived as %d of %d\n", c.Rank(), c.Size())
	return c.Finalize(ctx)
}

// The process of the store is killed: ranks that wait there for another one say so, long before their patience ends,
// and don't blame that one.
func TestStoreKilledInNew(t *testing.T) {
	testutil.SkipIfShort(t)
	t.Parallel() // it takes seconds, in which nothing is done
	addr, kill := startStore(t)
	cmds, outs := startAt(t, addr, "store dies in New", "shm", 3)
	for _, r := range []int{0, 2} {
		if !outs[r].wait("joining", 60*time.Second) {
			t.Fatalf("rank %d does not join: %s", r, outs[r])
		}
	}
	kill()
	for r, cmd := range cmds {
		if err := cmd.Wait(); err != nil || r != culprit && !strings.Contains(outs[r].String(), "store "+addr+" is gone") {
			t.Errorf("rank %d: %v\n%s", r, err, outs[r])
		}
		t.Logf("rank %d: %s", r, outs[r])
	}
}

// Ranks that have met need no store: they go on without, and without a rank that dies later.
func TestStoreKilled(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			addr, kill := startStore(t)
			cmds, outs := startAt(t, addr, "store dies", fabric, 3)
			for r := range cmds {
				if !outs[r].wait("ready", 60*time.Second) {
					t.Fatalf("rank %d is not ready: %s", r, outs[r])
				}
			}
			kill()
			cmds[culprit].Process.Kill()
			survived := 0
			for r, cmd := range cmds {
				err := cmd.Wait()
				if r == culprit {
					continue
				}
				if err != nil || !strings.Contains(outs[r].String(), fmt.Sprintf("survived as %d of 2", survived)) {
					t.Errorf("rank %d: %v\n%s", r, err, outs[r])
				}
				survived++
			}
		})
	}
}

// A program that learns from Err that the communicator is broken may end next: its flight record is written by then.
func TestErrLeavesARecord(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		t.Setenv("CHORUS_DUMP_DIR", dir)
		inWorld(2, func(ctx context.Context, c *comm.Comm) error {
			if c.Rank() == 0 {
				c.Abort(errors.New("on purpose"))
			}
			for c.Err() == nil {
				runtime.Gosched()
			}
			name := fmt.Sprintf("*_rank_%d.json", c.Rank())
			if found, err := filepath.Glob(filepath.Join(dir, name)); err != nil || len(found) != 1 {
				t.Errorf("there is no %s: %v", name, err)
			}
			return nil
		})
	}
}
