//go:build linux && (amd64 || arm64)

package opencl_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"os"
	"os/exec"
	"testing"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/opencl"
)

// Memory of another process: that one fills it by its device, and this one sees it.
func TestOtherProcess(t *testing.T) {
	const n = 3 << 20
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	d := open(t, opencl.Options{})
	ipc, ok := d.(driver.IPC)
	if !ok {
		t.Skip("left out: no OpenCL here whose kernels can touch any memory of the host")
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.StreamDestroy(s)
	if text := os.Getenv("OPENCL_TEST_HANDLE"); text != "" {
		handle, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ipc.IPCOpen(0, handle)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ipc.IPCOpen(0, handle)
		if err != nil || again != p {
			t.Fatalf("opened again: %v, %v, was %v", again, err, p)
		}
		if at, err := d.Attributes(p); err != nil || !at.Remote || at.Bytes != n {
			t.Errorf("attributes %+v (%v)", at, err)
		}
		if err := d.Fill(s, p, 0x5a, n); err != nil {
			t.Error(err)
		}
		for _, err := range []error{d.StreamSynchronize(ctx, s), ipc.IPCClose(p), ipc.IPCClose(p)} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := ipc.IPCClose(p); err == nil {
			t.Error("closed more often than opened")
		}
		return
	}
	p, err := d.Malloc(0, n)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(0, p)
	handle, err := ipc.IPCHandle(p)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOtherProcess$")
	child.Env = append(os.Environ(), "OPENCL_TEST_HANDLE="+hex.EncodeToString(handle))
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("the other process: %v\n%s", err, out)
	}
	host := make([]byte, n)
	if err := d.Copy(s, driver.Ptr(unsafe.Pointer(&host[0])), p, n, driver.DeviceToHost); err != nil {
		t.Fatal(err)
	}
	if err := d.StreamSynchronize(ctx, s); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(host, bytes.Repeat([]byte{0x5a}, n)) {
		t.Error("what the other process has written isn't here")
	}
}
