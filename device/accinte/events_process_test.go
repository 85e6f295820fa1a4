package accinte

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/driver"
	"github.com/chorus-comms/chorus/internal/testutil"
)

func init() { children["events"] = eventsChild }

// eventsChild makes an event, and does with it what the lines of the other side say; it answers each.
func eventsChild() int {
	d, err := New(Options{MemoryBytes: 1 << 20})
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	dev, _ := device.NewRuntime(Name, d).Device(1)
	s, _ := dev.NewStream(device.Normal)
	e := device.Event{Interprocess: true}
	h, err := e.IPCHandle(dev)
	if err != nil {
		return 3
	}
	fmt.Println(hex.EncodeToString(h))
	gate := make(chan struct{})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "record": // behind work that is held back
			held := gate
			err = errors.Join(s.HostFunc("hold", func() error { <-held; return nil }), s.Record(&e))
		case "release":
			close(gate)
			gate = make(chan struct{})
		case "wait": // for what the other side recorded
			err = errors.Join(s.Wait(&e), s.Synchronize(ctx))
		case "ask":
			done, qerr := e.Query()
			fmt.Println(done)
			err = qerr
		case "fail":
			err = errors.Join(s.HostFunc("unlucky", func() error { return errors.New("no luck") }), s.Record(&e))
			_ = s.Recover(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 4
		}
		fmt.Println("ok")
	}
	return 0
}

// otherProcess is a child that answers lines.
type otherProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startOther(t *testing.T, name string) *otherProcess {
	t.Helper()
	p := &otherProcess{t: t, cmd: child(t, name)}
	in, out := testutil.StartPiped(t, p.cmd)
	p.in, p.out = in, bufio.NewReader(out)
	return p
}

func (p *otherProcess) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

// does sends a command, and wants its answers.
func (p *otherProcess) does(command string, want ...string) {
	p.t.Helper()
	fmt.Fprintln(p.in, command)
	for _, w := range append(want, "ok") {
		if got := p.line(); got != w {
			p.t.Fatalf("%s: the other process says %q, want %q", command, got, w)
		}
	}
}

// Streams of two processes wait for each other's events.
func TestEventsBetweenProcesses(t *testing.T) {
	other := startOther(t, "events")
	killed := false
	defer func() {
		other.in.Close()
		if err := other.cmd.Wait(); err != nil && !killed {
			t.Errorf("the other process: %v", err)
		}
	}()
	h, err := hex.DecodeString(other.line())
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, Options{MemoryBytes: 1 << 20})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	dev, _ := device.NewRuntime(Name, d).Device(0)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := dev.NewStream(device.Normal)
	must(err)
	defer s.Close()
	e, err := device.OpenEvent(dev, h)
	must(err)
	defer e.Close()
	if _, err := e.IPCHandle(dev); !errors.Is(err, driver.ErrInvalidArgument) {
		t.Errorf("an event that was opened can be passed on: %v", err)
	}
	query := func(want bool) {
		t.Helper()
		if done, err := e.Query(); done != want || err != nil {
			t.Fatalf("Query = %v, %v, want %v", done, err, want)
		}
	}
	query(true) // never recorded
	must(e.Synchronize(ctx))

	// The other process's record holds up this one's stream, and one that comes later doesn't.
	var ran atomic.Bool
	other.does("record")
	query(false)
	must(s.Wait(e))
	must(s.HostFunc("after", func() error { ran.Store(true); return nil }))
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if err := e.Synchronize(short); !errors.Is(err, driver.ErrTimeout) || !strings.Contains(err.Error(),
		"another process") {
		t.Errorf("Synchronize = %v", err)
	}
	if done, err := s.Query(); done || err != nil || ran.Load() {
		t.Errorf("the stream doesn't wait: %v, %v", done, err)
	}
	other.does("release")
	must(e.Synchronize(ctx))
	must(s.Synchronize(ctx))
	query(true)
	if !ran.Load() {
		t.Error("the stream didn't go on")
	}
	must(s.Wait(e)) // for what is done
	other.does("record")
	must(s.Synchronize(ctx))
	other.does("release")

	// This process's record holds up the other one.
	gate := make(chan struct{})
	must(s.HostFunc("hold", func() error { <-gate; return nil }))
	must(s.Record(e))
	query(false)
	other.does("ask", "false")
	close(gate)
	other.does("wait")
	other.does("ask", "true")
	query(true)

	// A failure there is an error here.
	other.does("fail")
	var failed *driver.WorkError
	if err := e.Synchronize(ctx); !errors.As(err, &failed) || !strings.Contains(err.Error(), "no luck") ||
		!strings.Contains(err.Error(), fmt.Sprint("process ", other.cmd.Process.Pid)) {
		t.Errorf("Synchronize = %v", err)
	}
	must(s.Wait(e))
	if err := s.Recover(ctx); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("a stream that waited for failed work carries %v", err)
	}

	// A process that ends has failed what it has recorded.
	other.does("record")
	must(s.Wait(e))
	killed = true
	must(other.cmd.Process.Kill())
	if err := s.Recover(ctx); !errors.Is(err, driver.ErrFailed) || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a stream that waited for a process that was killed carries %v", err)
	}
	if err := e.Synchronize(ctx); !errors.Is(err, driver.ErrFailed) {
		t.Errorf("Synchronize = %v", err)
	}
	// Its place is free again, however often the event is recorded.
	for range 3 * eventRecords {
		must(s.Record(e))
		must(e.Synchronize(ctx))
	}
	// And a handle of a process that has ended opens nothing.
	if err := other.cmd.Wait(); err == nil {
		t.Error("it has ended well")
	}
	if _, err := device.OpenEvent(dev, h); !errors.Is(err, driver.ErrInvalidArgument) || !strings.Contains(err.Error(),
		"has ended") {
		t.Errorf("a handle of a process that has ended: %v", err)
	}
}

func FuzzEventHandle(f *testing.F) {
	good := eventHandle{PID: 7, FD: 3, Inode: 9, Color: 5}.encode()
	f.Add(good)
	f.Add(good[:10])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeEventHandle(b)
		if err == nil && string(h.encode()) != string(b) {
			t.Errorf("%x decodes to what encodes as %x", b, h.encode())
		}
	})
}
