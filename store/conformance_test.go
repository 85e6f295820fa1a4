package store_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHashStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) (a, b store.Store) {
		s := store.NewHash(0)
		return s, s
	}, storetest.Options{OneHandle: true})
}

func TestPrefixStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) (a, b store.Store) {
		s := store.NewHash(0)
		return view{store.NewPrefix("some", s), s}, view{store.NewPrefix("some", s), s}
	}, storetest.Options{OneHandle: true})
}

// A view closes the store beneath its prefix, as the suite expects.
type view struct {
	*store.PrefixStore
	base store.Store
}

func (v view) Close() error { return v.base.Close() }

// server serves until the test ends.
func server(t testing.TB, opts store.ServerOptions) *store.TCPServer {
	t.Helper()
	s, err := store.ListenTCP("127.0.0.1:0", opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// dial connects until the test ends.
func dial(t testing.TB, addr string, opts store.TCPOptions) *store.TCPStore {
	t.Helper()
	c, err := store.DialTCP(t.Context(), addr, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTCPStore(t *testing.T) {
	for _, d := range []store.Dialect{store.DialectS0, store.DialectS1} {
		t.Run(d.String(), func(t *testing.T) {
			lacks := storetest.Options{NoQueues: d == store.DialectS0, NoListKeys: d == store.DialectS0}
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				addr := server(t, store.ServerOptions{}).Addr().String()
				return dial(t, addr, store.TCPOptions{Dialect: d}), dial(t, addr, store.TCPOptions{Dialect: d})
			}, lacks)
		})
	}
}

// The process that serves and a process that does not see the same store.
func TestServerLocal(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b store.Store) {
		s := server(t, store.ServerOptions{})
		return dial(t, s.Addr().String(), store.TCPOptions{}), s.Local()
	}, storetest.Options{})
}

func TestFileStore(t *testing.T) {
	for name, cleanup := range map[string]store.Cleanup{"Refcount": store.CleanupRefcount, "Count": store.CleanupCount} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) (a, b store.Store) {
				path := filepath.Join(t.TempDir(), "store")
				return file(t, path, store.FileOptions{Cleanup: cleanup}), file(t, path, store.FileOptions{Cleanup: cleanup})
			}, storetest.Options{DeleteAlwaysTrue: true, NoQueues: true})
		})
	}
}

// file opens a FileStore until the test ends.
func file(t testing.TB, path string, opts store.FileOptions) *store.FileStore {
	t.Helper()
	s, err := store.OpenFile(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
