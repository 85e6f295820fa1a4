package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/wire/internal/zmtp"
	"github.com/chorus-comms/chorus/internal/testutil/nettest"
)

// TestHostile has connections that break the rules, keep quiet or don't read at all sockets of two engines, which go on
// working for their drivers, and end when they're told to.
func TestHostile(t *testing.T) {
	var told time.Time
	t.Run("world", func(t *testing.T) {
		ds := world(t, 2, abi.TCP, true, accl.Config{})
		start := int(ds[0].Member(0).Port)
		long := func(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{1, 0, 2}, n) }
		attack := func(port int, says []byte) {
			c, err := net.Dial("tcp", at(port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if says == nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			kind := "REQ"
			if port >= start+2 {
				kind = "SUB"
			}
			ready := append([]byte{4, 26, 5}, "READY\x0bSocket-Type\x00\x00\x00\x03"+kind...)
			greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'}, make([]byte, 48)...)
			c.Write(append(greeting, ready...))
			if _, err := io.ReadFull(c, make([]byte, len(greeting)+len(ready))); err != nil {
				t.Fatal(err)
			}
			c.Write(says)
		}
		reserve := append([]byte{1, 0, 0, 36}, `{"type":4,"addr":0,"len":16777216}  `...)
		read := append([]byte{1, 0, 0, 36}, `{"type":2,"addr":0,"len":16777216}  `...)
		for port := start; port < start+6; port++ {
			for range 3 {
				attack(port, nil)
			}
			for _, says := range [][]byte{{0, 1, 'x'}, long(1 << 62), long(1 << 38), append(reserve, read...), {0, 1, 1}} {
				attack(port, says)
			}
		}
		each(t, ds, func(ctx context.Context, d *accl.Driver) error {
			a, b := numbersFrom(d, 5000, d.Rank()), numbersFrom(d, 5000, 0)
			return errors.Join(expect("allreduce", d.Allreduce(ctx, abi.Sum, a, b, 5000), b,
				func(i int) int { return 1 + 2*(i%500) }), d.Barrier(ctx))
		})
		told = time.Now()
	})
	if d := time.Since(told); d > 5*time.Second {
		t.Errorf("the engines ended after %v", d)
	}
}

// TestAnotherUser has another user's process connect to each socket of an engine: it hears something only if
// CHORUS_INSECURE says so.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("left out: only root can start processes of another user")
	}
	for _, insecure := range []string{"false", "true"} {
		t.Setenv("CHORUS_INSECURE", insecure)
		start := int(world(t, 1, abi.TCP, true, accl.Config{})[0].Member(0).Port)
		for port := start; port < start+4; port++ {
			cmd := exec.Command("bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; head -c 1 <&3`, port))
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			if out, _ := cmd.Output(); (len(out) == 0) != (insecure == "false") {
				t.Errorf("CHORUS_INSECURE=%s: at socket %d it hears %q", insecure, port-start, out)
			}
		}
	}
}

// TestImpostors are listeners in an engine's place: the driver's device gets an error from those that break the
// protocol, and at its deadline from one that keeps quiet.
func TestImpostors(t *testing.T) {
	start, err := nettest.FreePorts(4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", at(start))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, 1, 0, start); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a listener that says nothing: %v", err)
	}
	l.Close()
	pub, err := zmtp.ListenPub(at(start), zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	if _, err := Dial(t.Context(), 1, 0, start); err == nil {
		t.Error("a publisher in the place of commands is taken for an engine")
	}
	pub.Close()
	// One that gives answers of the wrong sizes, and none to the third command.
	rep, err := zmtp.ListenRep(at(start), zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rep.Close()
	kernel, err := zmtp.ListenPub(at(start+2), zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	go rep.Serve(func([]byte) []byte { return []byte(`{"status":0,"rdata":[1,2,3]}`) })
	d, err := Dial(t.Context(), 1, 0, start)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Read(0); err == nil {
		t.Error("a list is taken for a word")
	}
	if err := d.ReadMemory(0, accl.MemoryKind{}, make([]byte, 5)); err == nil {
		t.Error("three bytes are taken for five")
	}
	rep.Close()
	if _, err := d.Read(0); !errors.Is(err, ErrGone) {
		t.Errorf("an engine that has gone: %v", err)
	}
}

// TestLargeMemory writes and reads more than goes in one command, at places and of sizes that aren't whole ones.
func TestLargeMemory(t *testing.T) {
	ds := world(t, 1, abi.TCP, true, accl.Config{})
	dev := ds[0].Device()
	const size = transfer + 4097
	addr, _, err := dev.Alloc(size, accl.MemoryKind{})
	if err != nil {
		t.Fatal(err)
	}
	from, into := make([]byte, size-3), make([]byte, size-3)
	for i := range from {
		from[i] = byte(i * 7 >> 3)
	}
	err = errors.Join(dev.WriteMemory(addr+3, accl.MemoryKind{}, from), dev.ReadMemory(addr+3, accl.MemoryKind{}, into))
	if err != nil {
		t.Fatal(err)
	}
	if string(from) != string(into) {
		t.Error("what is read isn't what was written")
	}
}
