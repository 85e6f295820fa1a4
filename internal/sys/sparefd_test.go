package sys

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// With no descriptor left the spare one is the next that is opened, and it's kept again afterwards.
func TestSpare(t *testing.T) {
	var d SpareFD
	if err := d.Keep(); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	low, fd := before, int(d.file.Fd())
	low.Cur = uint64(fd) + 1
	var held []*os.File
	for { // until the highest that may be open is the spare one
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
		if int(f.Fd()) > fd {
			break
		}
	}
	defer func() {
		for _, f := range held {
			f.Close()
		}
	}()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)
	for range 2 {
		if _, err := os.Open(os.DevNull); !OutOfDescriptors(err) {
			t.Fatalf("there's another descriptor: %v", err)
		}
		d.Lend(func() {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		})
	}
	var none SpareFD
	if err := none.Keep(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a second spare: %v", err)
	}
	none.Lend(func() {})
	none.Close()
}
