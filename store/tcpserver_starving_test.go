//go:build unix

package store_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// exhaust leaves this process no descriptor, until the test ends or it's restored.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	open := func() error {
		f, err := os.Open(os.DevNull)
		if err == nil {
			held = append(held, f)
		}
		return err
	}
	for range 16 { // above all that are in use, so that few are wanted below
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	low := before
	low.Cur = uint64(held[len(held)-1].Fd()) + 1
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	for none := 0; none < 50; none++ { // a server that begins to accept takes one for a moment
		for open() == nil {
			none = 0
		}
		time.Sleep(time.Millisecond)
	}
	restore = func() {
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
		for _, f := range held {
			f.Close()
		}
		held = nil
	}
	t.Cleanup(restore)
	return restore
}

// A client without descriptors says so at once, and doesn't try until its deadline.
func TestDialWithoutDescriptors(t *testing.T) {
	s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	restore := exhaust(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	_, err = store.DialTCP(ctx, s.Addr().String(), store.TCPOptions{})
	restore()
	if !errors.Is(err, syscall.EMFILE) || time.Since(began) > 10*time.Second || store.Gone(err) {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

// A server without descriptors closes new connections, rather than leave clients waiting.
func TestServerWithoutDescriptors(t *testing.T) {
	s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// The caller's descriptor is there before.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	restore := exhaust(t)
	at := &syscall.SockaddrInet4{Port: s.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := syscall.Connect(fd, at); err != nil {
		t.Fatal(err)
	}
	syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 20})
	n, err := syscall.Read(fd, make([]byte, 1))
	restore()
	if n > 0 || errors.Is(err, syscall.EAGAIN) {
		t.Errorf("%d bytes, %v, instead of the end of the connection", n, err)
	}
	syscall.Close(fd)
}

// An open store whose server has gone is known by its error.
func TestGone(t *testing.T) {
	s, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := store.DialTCP(t.Context(), s.Addr().String(), store.TCPOptions{Reconnect: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "never"); err == nil || store.Gone(err) {
		t.Errorf("a key that doesn't come: %v", err)
	}
	s.Close()
	if _, err := c.Add(t.Context(), "n", 1); !store.Gone(err) {
		t.Errorf("no server: %v", err)
	}
}
