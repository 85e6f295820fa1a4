package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/store/storetest"
)

// TestOpen opens a store of each scheme, and one that the program has registered.
func TestOpen(t *testing.T) {
	shared := store.NewHash(0)
	store.Register("test", func(_ context.Context, address string, _ store.OpenOptions) (store.Store, error) {
		return store.NewPrefix(strings.TrimPrefix(address, "test:"), shared), nil
	})
	none := store.OpenOptions{Security: new(secure.Policy)}
	for name, address := range map[string]string{
		"tcp":        "tcp://" + server(t, store.ServerOptions{}).Addr().String(),
		"plain":      "tcp://" + server(t, store.ServerOptions{}).Addr().String() + "?plain",
		"file":       "file://" + filepath.Join(t.TempDir(), "store"),
		"registered": "test:a",
	} {
		t.Run(name, func(t *testing.T) {
			a, err := store.Open(t.Context(), address, none)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			b, err := store.Open(t.Context(), address, none)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			if err := a.Set(t.Context(), "k", []byte(name)); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Get(t.Context(), "k"); err != nil || string(got) != name {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for address, says := range map[string]string{
		"":                         "file, hash, tcp, test;",
		"etcd://node0:2379":        "must be imported",
		"tcp://127.0.0.1":          "no port",
		"tcp://127.0.0.1:0":        "no port",
		"tcp://node0:1?listen":     "CHORUS_SECRET_FILE",
		"tcp://%zz":                "invalid URL escape",
		"file:":                    "no path",
		"file://host/path":         "file:///PATH",
		"tcp://192.0.2.1:1?listen": "needs a secret",
	} {
		if st, err := store.Open(t.Context(), address, none); !errors.Is(err, store.ErrOptions) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", address, st, err)
		}
	}
	t.Setenv("CHORUS_SECRET", "short")
	if _, err := store.Open(t.Context(), "tcp://127.0.0.1:1", store.OpenOptions{}); !errors.Is(err, store.ErrOptions) {
		t.Errorf("with a bad secret: %v", err)
	}
	if st, err := store.Open(t.Context(), "hash:", store.OpenOptions{}); err != nil || st.Close() != nil {
		t.Errorf("what needs no secret: %v", err)
	}
}

// TestServed opens the store of this process from an address, as a server and as its client.
func TestServed(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (a, b store.Store) {
		l := server(t, store.ServerOptions{}) // its port is free once it's closed
		address := "tcp://" + l.Addr().String()
		l.Close()
		b, err := store.Open(t.Context(), address+"?listen", store.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a, err = store.Open(t.Context(), address, store.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}, storetest.Options{})
}
