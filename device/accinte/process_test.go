package accinte

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// childVar tells a copy of the test program which of children it is to be.
const childVar = "CHORUS_ACCINTE_CHILD"

var children = map[string]func() int{"share": shareChild, "touch": touchChild}

func child(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"="+name, "GOTRACEBACK=none")
	return cmd
}

const sharedBytes = 3 << 20

// shareChild allocates, prints the handle, and waits for the other side to have written.
func shareChild() int {
	d, err := New(Options{MemoryBytes: 64 << 20})
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt := device.NewRuntime(Name, d)
	dev, _ := rt.Device(1)
	s, _ := dev.NewStream(device.Normal)
	if _, err := dev.Malloc(12345); err != nil { // so that the offset is not 0
		return 3
	}
	p, err := dev.Malloc(sharedBytes)
	if err != nil || s.CopyIn(ctx, p, bytes.Repeat([]byte{7}, sharedBytes)) != nil {
		return 4
	}
	h, err := d.IPCHandle(p)
	if err != nil {
		return 5
	}
	fmt.Println(hex.EncodeToString(h))
	in := bufio.NewReader(os.Stdin)
	if line, err := in.ReadString('\n'); err != nil || line != "written\n" {
		return 6
	}
	got := make([]byte, sharedBytes)
	if err := s.CopyOut(ctx, got, p); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{8}, sharedBytes)) {
		return 7
	}
	io.Copy(io.Discard, in) // until the other side is through
	return 0
}

// Two processes see the same device memory.
func TestIPC(t *testing.T) {
	cmd := child(t, "share")
	in, out := testutil.StartPiped(t, cmd)
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	h, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, Options{MemoryBytes: 64 << 20})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt := device.NewRuntime(Name, d)
	dev, _ := rt.Device(0)
	s, err := dev.Stream(device.Normal)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.IPCOpen(0, h)
	if err != nil {
		t.Fatal(err)
	}
	at, err := d.Attributes(p.Add(5))
	if want := (driver.Attributes{Type: driver.DeviceMemory, Device: 0, Base: p, Bytes: sharedBytes,
		Remote: true}); err != nil || at != want {
		t.Errorf("attributes %+v, %v, want %+v", at, err, want)
	}
	got := make([]byte, sharedBytes)
	if err := s.CopyOut(ctx, got, p); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{7}, sharedBytes)) {
		t.Errorf("the other process's bytes don't arrive: %v", err)
	}
	again, err := d.IPCOpen(0, h)
	if err != nil || again != p {
		t.Errorf("opened again: %v, %v, want %v", again, err, p)
	}
	for name, c := range map[string]struct {
		err  error
		want driver.Kind
	}{
		"on another device": {second(d.IPCOpen(1, h)), driver.ErrWrongDevice},
		"passed on":         {second(d.IPCHandle(p)), driver.ErrInvalidArgument},
		"freed":             {d.Free(0, p), driver.ErrInvalidPointer},
		"out of bounds":     {s.Fill(p, 1, sharedBytes+1), driver.ErrOutOfBounds},
		"read by the host":  {second(rt.HostBytes(p, 1)), driver.ErrHostAccess},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	if err := s.Fill(p, 8, sharedBytes); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.IPCClose(p); err != nil {
			t.Error(err)
		}
	}
	if err := d.IPCClose(p); !errors.Is(err, driver.ErrInvalidPointer) {
		t.Errorf("closed once too often: %v", err)
	}
	if err := s.Synchronize(ctx); err != nil { // the fill still had the memory
		t.Fatal(err)
	}
	if err := s.Fill(p, 9, 1); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("a fill after closing: %v", err)
	}
	fmt.Fprintln(in, "written")

	// A handle whose descriptor is another file by now, and one of a process that there isn't.
	if x, err := decodeHandle(h); err != nil {
		t.Error(err)
	} else {
		other := x
		other.Inode++
		if _, err := d.IPCOpen(0, other.encode()); !errors.Is(err, driver.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), "something else") {
			t.Errorf("a handle with another file: %v", err)
		}
		other = x
		other.PID = 1 << 30
		if _, err := d.IPCOpen(0, other.encode()); !errors.Is(err, driver.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), "has ended") {
			t.Errorf("a handle of no process: %v", err)
		}
		other = x
		other.Size *= 2
		if _, err := d.IPCOpen(0, other.encode()); !errors.Is(err, driver.ErrInvalidArgument) {
			t.Errorf("a handle that claims more memory than there is: %v", err)
		}
	}
}

// touchChild reads device memory by its pointer, without any protection, as C would.
func touchChild() int {
	d, err := New(Options{MemoryBytes: 1 << 20})
	if err != nil {
		return 2
	}
	p, err := d.Malloc(0, 4096)
	if err != nil {
		return 3
	}
	fmt.Println("about to read")
	return int(*(*byte)(address(p))) // never gets past this
}

// An unguarded read of device memory ends the process, each time.
func TestTouchIsFatal(t *testing.T) {
	for range 3 {
		cmd := child(t, "touch")
		cmd.Env = append(cmd.Env, "GOTRACEBACK=crash")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatalf("the process ended with %v\n%s", err, out)
		}
		st := exit.Sys().(syscall.WaitStatus)
		if !bytes.HasPrefix(out, []byte("about to read\n")) || !bytes.Contains(out, []byte("SIGSEGV")) || !st.Signaled() {
			t.Errorf("the process ended with %v\n%.500s", err, out)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func FuzzHandle(f *testing.F) {
	good := handle{PID: 1, FD: 3, Inode: 9, Size: 1 << 30, Offset: 4096, Bytes: 100}.encode()
	f.Add(good)
	f.Add(good[:10])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHandle(b)
		if err != nil {
			return
		}
		if h.Bytes == 0 || h.Offset+h.Bytes > h.Size || h.Offset+h.Bytes < h.Offset {
			t.Errorf("accepted %+v", h)
		}
		if !bytes.Equal(h.encode(), b) {
			t.Errorf("%x decodes to what encodes as %x", b, h.encode())
		}
	})
}
