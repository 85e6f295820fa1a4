package store_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
)

//go:embed testdata/peer.py
var peerScript string

// A torchPeer is a PyTorch process with stores in it.
type torchPeer struct {
	mu      sync.Mutex
	in      io.WriteCloser
	next    int
	answers map[int]chan answer
	down    error
	names   atomic.Int64
}

type answer struct {
	ID     int
	Result json.RawMessage
	Error  string
}

// newPeer starts a PyTorch process; python is the interpreter.
func newPeer(t *testing.T, python string) *torchPeer {
	t.Helper()
	cmd := exec.Command(python, "-c", peerScript)
	cmd.Env = testutil.PythonEnv("USE_LIBUV=1")
	in, out := testutil.StartPiped(t, cmd)
	p := &torchPeer{in: in, answers: map[int]chan answer{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		<-read
		cmd.Wait()
	})
	return p
}

func (p *torchPeer) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue
		}
		p.mu.Lock()
		ch := p.answers[a.ID]
		delete(p.answers, a.ID)
		p.mu.Unlock()
		if ch != nil {
			ch <- a
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = errors.New("the PyTorch process has ended")
	for _, ch := range p.answers {
		ch <- answer{Error: p.down.Error()}
	}
}

// ask sends a request and decodes the answer into result, if that is not nil.
func (p *torchPeer) ask(request map[string]any, result any) error {
	ch := make(chan answer, 1)
	p.mu.Lock()
	if p.down != nil {
		p.mu.Unlock()
		return p.down
	}
	p.next++
	request["id"] = p.next
	p.answers[p.next] = ch
	line, err := json.Marshal(request)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	a := <-ch
	if a.Error != "" {
		return errors.New(a.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(a.Result, result)
}

// open makes a store in the process; for a TCPStore it returns the port.
func (p *torchPeer) open(kind string, args map[string]any) (*torchStore, int, error) {
	name := fmt.Sprint(kind, p.names.Add(1))
	var port int
	err := p.ask(map[string]any{"new": kind, "as": name, "args": args}, &port)
	return &torchStore{peer: p, name: name}, port, err
}

// must opens a store that is dropped when the test ends.
func (p *torchPeer) must(t *testing.T, kind string, args map[string]any) (*torchStore, int) {
	t.Helper()
	s, port, err := p.open(kind, args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, port
}

// client connects a TCPStore of PyTorch to a port on this host.
func (p *torchPeer) client(t *testing.T, port int) *torchStore {
	t.Helper()
	s, _ := p.must(t, "tcp", map[string]any{"host": "127.0.0.1", "port": port, "timeout": 20})
	return s
}

// A torchStore is a store within the PyTorch process as a store.Store.
type torchStore struct {
	peer *torchPeer
	name string
	once sync.Once
	// check answers Check instead of PyTorch 1, whose Python API lacks it.
	check store.Store
}

var _ store.Extended = (*torchStore)(nil)

// latin1 turns bytes into text with a character for each.
func latin1[T string | []byte](b T) string {
	r := make([]rune, len(b))
	for i := range len(b) {
		r[i] = rune(b[i])
	}
	return string(r)
}

func bytesOf(s string) []byte {
	b := []byte{}
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}

func latin1s(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = latin1(k)
	}
	return out
}

func (s *torchStore) call(ctx context.Context, result any, method string, args ...any) error {
	timeout := 20.0
	if d, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(d).Seconds(), 0.001)
	}
	err := s.peer.ask(map[string]any{"on": s.name, "method": method, "args": args, "timeout": timeout}, result)
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "timeout"), strings.Contains(err.Error(), "timed out"):
		return &store.TimeoutError{Op: method, Err: err}
	case strings.Contains(err.Error(), "NotImplemented"), strings.Contains(err.Error(), "AttributeError"):
		return errors.Join(errors.ErrUnsupported, err)
	}
	return err
}

func (s *torchStore) value(ctx context.Context, method string, args ...any) ([]byte, error) {
	var v string
	err := s.call(ctx, &v, method, args...)
	return bytesOf(v), err
}

func (s *torchStore) Set(ctx context.Context, key string, value []byte) error {
	return s.call(ctx, nil, "set", latin1(key), latin1(value))
}

func (s *torchStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.value(ctx, "get", latin1(key))
}

func (s *torchStore) Add(ctx context.Context, key string, delta int64) (n int64, err error) {
	err = s.call(ctx, &n, "add", latin1(key), delta)
	return n, err
}

func (s *torchStore) Wait(ctx context.Context, keys ...string) error {
	return s.call(ctx, nil, "wait", latin1s(keys))
}

func (s *torchStore) Check(ctx context.Context, keys ...string) (all bool, err error) {
	if s.check != nil {
		return s.check.Check(ctx, keys...)
	}
	err = s.call(ctx, &all, "check", latin1s(keys))
	return all, err
}

func (s *torchStore) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return s.value(ctx, "compare_set", latin1(key), latin1(expected), latin1(desired))
}

func (s *torchStore) Delete(ctx context.Context, key string) (there bool, err error) {
	err = s.call(ctx, &there, "delete_key", latin1(key))
	return there, err
}

func (s *torchStore) NumKeys(ctx context.Context) (n int64, err error) {
	err = s.call(ctx, &n, "num_keys")
	return n, err
}

func (s *torchStore) Append(ctx context.Context, key string, value []byte) error {
	return s.call(ctx, nil, "append", latin1(key), latin1(value))
}

func (s *torchStore) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	var texts []string
	err := s.call(ctx, &texts, "multi_get", latin1s(keys))
	var values [][]byte
	for _, v := range texts {
		values = append(values, bytesOf(v))
	}
	return values, err
}

func (s *torchStore) MultiSet(ctx context.Context, keys []string, values [][]byte) error {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = latin1(v)
	}
	return s.call(ctx, nil, "multi_set", latin1s(keys), texts)
}

func (s *torchStore) QueuePush(ctx context.Context, key string, value []byte) error {
	return s.call(ctx, nil, "queue_push", latin1(key), latin1(value))
}

func (s *torchStore) QueuePop(ctx context.Context, key string) ([]byte, error) {
	return s.value(ctx, "queue_pop", latin1(key))
}

func (s *torchStore) QueueLen(ctx context.Context, key string) (n int64, err error) {
	err = s.call(ctx, &n, "queue_len", latin1(key))
	return n, err
}

func (s *torchStore) ListKeys(ctx context.Context) ([]string, error) {
	var texts []string
	err := s.call(ctx, &texts, "list_keys")
	var keys []string
	for _, k := range texts {
		if k != "efcount/" { // what FileStore in 2.13 makes of its bookkeeping key
			keys = append(keys, string(bytesOf(k)))
		}
	}
	slices.Sort(keys)
	return keys, err
}

func (s *torchStore) Barrier(ctx context.Context, key string, size int) error {
	return s.call(ctx, nil, "barrier", latin1(key), size)
}

func (s *torchStore) Close() error {
	s.once.Do(func() { s.peer.ask(map[string]any{"drop": s.name}, nil) })
	return nil
}

// TestPyTorch has our stores and those of a PyTorch process work together.
func TestPyTorch(t *testing.T) {
	peer := newPeer(t, testutil.Python(t))

	for _, libuv := range testutil.Pick([]bool{true}, []bool{true, false}) {
		backend := map[bool]string{true: "Libuv", false: "Legacy"}[libuv]
		args := map[string]any{"host": "127.0.0.1", "port": 0, "master": true, "timeout": 20, "libuv": libuv}
		opts := storetest.Options{NoQueues: !libuv}
		if !libuv {
			opts.Silent = []string{"compare_set"}
		}

		t.Run("OurClientsTheirServer/"+backend, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				_, port := peer.must(t, "tcp", args)
				addr := fmt.Sprint("127.0.0.1:", port)
				return dial(t, addr, store.TCPOptions{}), dial(t, addr, store.TCPOptions{Dialect: store.DialectProbe})
			}, opts)
		})
		t.Run("BothClientsTheirServer/"+backend, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				theirs, port := peer.must(t, "tcp", args)
				return dial(t, fmt.Sprint("127.0.0.1:", port), store.TCPOptions{}), theirs
			}, opts)
		})
		t.Run("WaitForWorkers/"+backend, func(t *testing.T) {
			port := freePort(t)
			ours := make(chan error, 1)
			go func() {
				c, err := store.DialTCP(t.Context(), fmt.Sprint("127.0.0.1:", port), store.TCPOptions{WorldSize: 2})
				if err == nil {
					defer c.Close()
				}
				ours <- err
			}()
			// It returns when both have come.
			peer.must(t, "tcp", map[string]any{"host": "127.0.0.1", "port": port, "master": true, "timeout": 20,
				"libuv": libuv, "world": 2, "wait": true})
			if err := <-ours; err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("TheirClientsOurServer", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b store.Store) {
			s := server(t, store.ServerOptions{})
			return dial(t, s.Addr().String(), store.TCPOptions{}), peer.client(t, s.Port())
		}, storetest.Options{})
	})
	t.Run("TheirTimeout", func(t *testing.T) {
		s := server(t, store.ServerOptions{})
		theirs := peer.client(t, s.Port())
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		// Without a clone, so that the connection that gave up is used again.
		err := peer.ask(map[string]any{"on": theirs.name, "method": "wait_here", "args": []any{"k"}, "timeout": 0.2}, nil)
		if err == nil || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("got %v", err)
		}
		if n, err := theirs.Add(ctx, "n", 3); n != 3 || err != nil {
			t.Errorf("after the timeout: %d, %v", n, err)
		}
	})
	t.Run("File", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b store.Store) {
			path := filepath.Join(t.TempDir(), "store")
			theirs, _ := peer.must(t, "file", map[string]any{"path": path, "world": -1})
			return file(t, path, store.FileOptions{}), theirs
		}, storetest.Options{DeleteAlwaysTrue: true, NoQueues: true})
	})
	t.Run("FileCleanup", func(t *testing.T) { testCleanup(t, peer, store.CleanupRefcount) })
	t.Run("Prefix", func(t *testing.T) { testPrefix(t, peer) })
}

// TestPyTorch1 speaks dialect S0 with a PyTorch 1.13, such as Debian 12's
// python3-torch, whose interpreter CHORUS_TEST_TORCH1_PYTHON names.
func TestPyTorch1(t *testing.T) {
	python := os.Getenv("CHORUS_TEST_TORCH1_PYTHON")
	if python == "" {
		t.Skip("left out: CHORUS_TEST_TORCH1_PYTHON names no Python with PyTorch 1.13")
	}
	peer := newPeer(t, python)
	opts := storetest.Options{NoQueues: true, NoListKeys: true}

	t.Run("TheirServer", func(t *testing.T) {
		opts := opts
		opts.Silent = []string{"compare_set", "append"}
		storetest.Run(t, func(t *testing.T) (a, b store.Store) {
			theirs, port := peer.must(t, "tcp", map[string]any{"host": "127.0.0.1", "port": 0, "master": true, "timeout": 20})
			ours := dial(t, fmt.Sprint("127.0.0.1:", port), store.TCPOptions{Dialect: store.DialectProbe})
			if ours.Dialect() != store.DialectS0 {
				t.Errorf("the probe found %v", ours.Dialect())
			}
			theirs.check = ours
			return ours, theirs
		}, opts)
	})
	for _, d := range []store.Dialect{store.DialectDefault, store.DialectS0} {
		t.Run("OurServer/"+d.String(), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				s := server(t, store.ServerOptions{Dialect: d})
				ours := dial(t, s.Addr().String(), store.TCPOptions{Dialect: store.DialectS0})
				theirs := peer.client(t, s.Port())
				theirs.check = ours
				return ours, theirs
			}, opts)
		})
	}
	t.Run("File", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) (a, b store.Store) {
			path := filepath.Join(t.TempDir(), "store")
			theirs, _ := peer.must(t, "file", map[string]any{"path": path, "world": -1})
			ours := file(t, path, store.FileOptions{Cleanup: store.CleanupCount})
			theirs.check = ours
			return ours, theirs
		}, storetest.Options{DeleteAlwaysTrue: true, NoQueues: true, NoListKeys: true})
	})
	t.Run("FileCleanup", func(t *testing.T) { testCleanup(t, peer, store.CleanupCount) })
}

// testCleanup closes the last store on either side, which removes the file.
func testCleanup(t *testing.T, peer *torchPeer, style store.Cleanup) {
	for _, oursLast := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "store")
		theirs, _ := peer.must(t, "file", map[string]any{"path": path, "world": 2})
		ours := file(t, path, store.FileOptions{WorldSize: 2, Cleanup: style})
		if err := theirs.Set(t.Context(), "k", nil); err != nil {
			t.Fatal(err)
		}
		order := []store.Store{ours, theirs}
		if oursLast {
			slices.Reverse(order)
		}
		order[0].Close()
		if _, err := os.Stat(path); err != nil {
			t.Errorf("ours last %v: after one of two: %v", oursLast, err)
		}
		order[1].Close()
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("ours last %v: after both the file is still there: %v", oursLast, err)
		}
	}
}

// testPrefix compares the keys that nested prefixes make.
func testPrefix(t *testing.T, peer *torchPeer) {
	s := server(t, store.ServerOptions{})
	var theirs store.Store = peer.client(t, s.Port())
	var ours store.Store = dial(t, s.Addr().String(), store.TCPOptions{})
	for i, prefix := range []string{"default_pg", "0/", "cpu/", "0"} {
		base := theirs.(*torchStore).name
		theirs, _ = peer.must(t, "prefix", map[string]any{"prefix": prefix, "base": base})
		ours = store.NewPrefix(prefix, ours)
		if err := theirs.Set(t.Context(), "k", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if v, err := ours.Get(t.Context(), "k"); string(v) != string([]byte{byte(i)}) || err != nil {
			t.Errorf("%s: got %q, %v", prefix, v, err)
		}
	}
	want := []string{"default_pg/0//cpu//0/k", "default_pg/0//cpu//k", "default_pg/0//k", "default_pg/k"}
	keys, err := s.Local().ListKeys(t.Context())
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("keys %q, %v, want %q", keys, err, want)
	}
}

// freePort returns a port on which no process listens.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := nettest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

//go:embed testdata/allreduce.py
var allReduceScript string

// TestProcessGroup has two PyTorch ranks meet at our server and all-reduce: by its
// address, and by a store that they opened themselves.
func TestProcessGroup(t *testing.T) {
	python := testutil.Python(t)
	byAddress, byStore := server(t, store.ServerOptions{}), server(t, store.ServerOptions{})
	var ranks sync.WaitGroup
	for r := range 2 {
		ranks.Go(func() {
			cmd := exec.CommandContext(t.Context(), python, "-c", allReduceScript,
				fmt.Sprint(byAddress.Port()), fmt.Sprint(byStore.Port()), fmt.Sprint(r))
			cmd.Env = testutil.PythonEnv("GLOO_SOCKET_IFNAME=lo", "TORCHELASTIC_USE_AGENT_STORE=True")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "tcp sum 3.0") || !strings.Contains(string(out), "store sum 3.0") {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		})
	}
	ranks.Wait()
	for prefix, s := range map[string]*store.TCPServer{"default_pg/": byAddress, "": byStore} {
		if ok, err := s.Local().Check(t.Context(), prefix+"0//cpu//0/0", prefix+"0//cpu//0/1"); !ok || err != nil {
			keys, _ := s.Local().ListKeys(t.Context())
			t.Errorf("%q: the ranks left no records, but %q, %v", prefix, keys, err)
		}
	}
}
