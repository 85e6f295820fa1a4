package glootest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// doorVar names the socket at which processes that a test has started have ranks forked, too.
const doorVar = "CHORUS_TEST_TORCHRANK"

// Door opens the process that forks ranks to processes with the variable that it returns: what they call Start in, and
// commands that call Enter. Their ranks end with them.
func Door(t testing.TB) (env string) {
	t.Helper()
	hatch(t)
	at := filepath.Join(t.TempDir(), "door")
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	var guests sync.WaitGroup
	guests.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			guests.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); guests.Wait() })
	return doorVar + "=" + at
}

// serve has the ranks of another process forked, and tells it of them.
func serve(conn net.Conn) {
	var mine []*Rank
	var told sync.WaitGroup
	defer told.Wait()
	defer conn.Close()
	<-nursery.told
	fmt.Fprintln(conn, nursery.version)
	for in := json.NewDecoder(conn); ; {
		var o order
		if in.Decode(&o) != nil {
			break
		}
		id := o.ID
		r, err := fork(o)
		if err != nil {
			break
		}
		mine = append(mine, r)
		fmt.Fprintln(conn, id, r.PID)
		told.Go(func() {
			<-r.ended
			fmt.Fprintln(conn, id, 0, r.status)
		})
	}
	for _, r := range mine {
		r.Kill()
	}
}

// Enter makes this process, whose test has opened the door, stand for a rank that runs the script in its environment:
// it prints what that prints, ends as that ends, and that with it. It's for commands of launchers.
func Enter(script string) {
	vars := map[string]string{}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	dir := filepath.Dir(os.Getenv(doorVar))
	conn, err := net.Dial("unix", os.Getenv(doorVar))
	if err != nil {
		fail(err)
	}
	n := &nursery
	n.open(conn, conn, func() {})
	r, err := fork(order{Env: vars, Dir: dir, Script: script})
	if err != nil {
		fail(err)
	}
	<-r.ended
	if f, err := os.Open(r.out); err == nil {
		io.Copy(os.Stdout, f)
	}
	os.Exit(r.status)
}

// namespaces is where a process that went through the door finds its namespaces.
func namespaces() string {
	if os.Getenv(doorVar) == "" {
		return ""
	}
	return fmt.Sprintf("/proc/%d/ns", os.Getpid())
}
