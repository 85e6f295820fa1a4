//go:build linux && (amd64 || arm64)

package gpu_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/device/gpu/gputest"
)

// Memory and events of another process: that one fills the memory behind the event, which this one then reads.
func TestOtherProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	const name, bytes = "cuda", 5000
	d, _ := open(t, gputest.Options{Name: name, MemoryBytes: 32 << 20})
	if text := os.Getenv("GPU_TEST_HANDLES"); text != "" {
		if err := inOther(ctx, d, text); err != nil {
			t.Fatal(err)
		}
		return
	}
	p, err := d.Malloc(1, bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(1, p)
	e, err := d.IPCEventCreate(1)
	if err != nil {
		t.Fatal(err)
	}
	defer d.EventDestroy(e)
	memory, err := d.IPCHandle(p)
	if err != nil {
		t.Fatal(err)
	}
	event, err := d.IPCEventHandle(e)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOtherProcess$")
	child.Env = append(os.Environ(), fmt.Sprintf("GPU_TEST_HANDLES=%x %x", memory, event))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "recorded\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	s, err := d.StreamCreate(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.StreamDestroy(s)
	host, err := d.MallocHost(bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer d.FreeHost(host)
	err = errors.Join(d.StreamWaitEvent(s, e), d.Copy(s, host, p, bytes, driver.DeviceToHost))
	if err != nil {
		t.Fatal(err)
	}
	if done, err := d.StreamQuery(s); done || err != nil {
		t.Errorf("StreamQuery = %v, %v: the other process has not done what it recorded", done, err)
	}
	in.Close() // lets it
	if err := d.StreamSynchronize(ctx, s); err != nil {
		t.Error(err)
	}
	got, err := device.NewRuntime(name, d).HostBytes(host, bytes)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if b != 9 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	if err := child.Wait(); err != nil {
		t.Error("the other process: ", err)
	}
}

// inOther is the other process, which holds its stream back until its input ends.
func inOther(ctx context.Context, d interface {
	driver.Driver
	driver.IPC
	driver.IPCEvents
}, text string) error {
	var handles [][]byte
	for f := range strings.FieldsSeq(text) {
		h, err := hex.DecodeString(f)
		if err != nil {
			return err
		}
		handles = append(handles, h)
	}
	p, err := d.IPCOpen(0, handles[0])
	if err != nil {
		return err
	}
	at, err := d.Attributes(p.Add(10))
	if err != nil || !at.Remote || at.Base != p || at.Bytes != 5000 {
		return fmt.Errorf("Attributes = %+v, %v", at, err)
	}
	if _, err := d.IPCHandle(p); !errors.Is(err, driver.ErrInvalidArgument) {
		return fmt.Errorf("passing memory on: %v", err)
	}
	if err := d.Free(0, p); !errors.Is(err, driver.ErrInvalidPointer) {
		return fmt.Errorf("freeing it: %v", err)
	}
	e, err := d.IPCEventOpen(0, handles[1])
	if err != nil {
		return err
	}
	if _, err := d.IPCEventHandle(e); !errors.Is(err, driver.ErrInvalidArgument) {
		return fmt.Errorf("passing an event on: %v", err)
	}
	s, err := d.StreamCreate(0, 0)
	if err != nil {
		return err
	}
	hold := func() error { _, err := os.Stdin.Read(make([]byte, 1)); _ = err; return nil }
	err = errors.Join(d.HostFunc(s, "hold", hold), d.Fill(s, p, 9, 5000), d.EventRecord(e, s))
	fmt.Println("recorded")
	return errors.Join(err, d.StreamSynchronize(ctx, s), d.EventDestroy(e), d.IPCClose(p), d.StreamDestroy(s))
}
