package hybrid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/fabric/transport"
)

// quick is a stand-in for a network that is faster than TCP: messages between goroutines.
var quick struct {
	sync.Mutex
	missing map[int]string // ranks that know that they haven't got it, and why
	failing map[int]string // those that find out when it's opened
	opened  int
}

func init() {
	listen, options, err := transport.Part("mem")
	if err != nil {
		panic(err)
	}
	transport.Register("quick", listen, func() fabric.Options { return options })
	transport.Prefer(transport.Preference{
		Name: "quick",
		Look: func(c fabric.Config) error {
			quick.Lock()
			defer quick.Unlock()
			if why, ok := quick.missing[c.Rank]; ok || quick.missing == nil {
				return errors.New(why)
			}
			return nil
		},
		Listen: func(ctx context.Context, c fabric.Config) (transport.Endpoint, error) {
			quick.Lock()
			quick.opened++
			why, failed := quick.failing[c.Rank]
			quick.Unlock()
			if failed {
				return nil, errors.New(why)
			}
			return listen(ctx, c)
		},
	})
}

// TestFar opens worlds of which all ranks, some or none can use a faster network. All take one fabric between hosts,
// and the log says which ranks have kept the others from the faster one.
func TestFar(t *testing.T) {
	checkLeaks(t)
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	all := map[int]string{}
	for _, x := range []struct {
		hosts            string
		missing, failing map[int]string
		options          map[int]string // value of option far, by rank
		path             string         // between hosts
		opened           int
		log              string // a part of it; "": there's none
	}{
		{hosts: "a b b", missing: all, path: "quick", opened: 3},
		{hosts: "b b", missing: all},
		{hosts: "a b b", missing: map[int]string{0: "no port", 1: "no port", 2: "no port"}, path: "tcp"},
		{hosts: "a b b", missing: map[int]string{1: "no port"}, path: "tcp", log: "rank 1 can't use quick: no port"},
		{hosts: "a b b", missing: map[int]string{0: "no library", 2: "no port"}, path: "tcp",
			log: "rank 0 can't use quick: no library (and 1 other rank)"},
		{hosts: "a b b", missing: all, failing: map[int]string{2: "only slow ones"}, path: "tcp", opened: 3,
			log: "rank 2 can't take part: only slow ones"},
		{hosts: "a b b", missing: all, options: map[int]string{0: "TCP", 1: "tcp", 2: "tcp"}, path: "tcp"},
		{hosts: "a b b", missing: all, options: map[int]string{1: "tcp"}, path: "tcp",
			log: "rank 1 can't use quick: it has tcp"},
		{hosts: "a b b", missing: map[int]string{1: "no port"}, path: "quick",
			options: map[int]string{0: "quick", 1: "quick", 2: "quick"}},
	} {
		name := fmt.Sprintf("hosts %s, missing %v, failing %v, options %v", x.hosts, x.missing, x.failing, x.options)
		log.Reset()
		quick.Lock()
		quick.missing, quick.failing, quick.opened = x.missing, x.failing, 0
		quick.Unlock()
		ranks := open(t, x.hosts, func(c *fabric.Config) {
			if v := x.options[c.Rank]; v != "" {
				c.Defaults = map[string]string{"far": v}
			}
		})
		for r, f := range ranks {
			for p := range ranks {
				want := "shm"
				switch hosts := strings.Fields(x.hosts); {
				case p == r:
					want = "self"
				case hosts[p] != hosts[r]:
					want = x.path
				}
				if got := f.Path(p); got != want {
					t.Errorf("%s: rank %d reaches rank %d by %s, want %s", name, r, p, got, want)
				}
			}
		}
		in, out := make([]byte, 100), make([]byte, 100)
		out[99] = 1
		last := len(ranks) - 1
		w0, w1 := newWaiter(), newWaiter()
		send, recv := message(w0, last, 1, out), message(w1, 0, 1, in)
		ranks[last].Recv(recv)
		ranks[0].Send(send)
		if err := errors.Join(ranks[last].Wait(recv, w1), ranks[0].Wait(send, w0)); err != nil || in[99] != 1 {
			t.Errorf("%s: a message: %v", name, err)
		}
		if quick.opened != x.opened {
			t.Errorf("%s: %d ranks have opened the faster one, want %d", name, quick.opened, x.opened)
		}
		if got := log.String(); !strings.Contains(got, x.log) || (got == "") != (x.log == "") ||
			x.log != "" && strings.Count(got, "\n") != 1 {
			t.Errorf("%s: the log is %q, want %q", name, got, x.log)
		}
		closeAll(t, ranks)
	}

	quick.Lock()
	quick.missing, quick.failing = map[int]string{1: "no port"}, nil
	quick.Unlock()
	_, errs := openAll("a b b", func(c *fabric.Config) {
		if c.Rank == 0 {
			c.Options["far"] = "quick"
		}
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 1 can't use quick: no port") ||
			!strings.Contains(err.Error(), "rank 0 can't use tcp: it has quick") {
			t.Errorf("rank %d, with far=quick at rank 0 alone: %v", r, err)
		}
	}
	quick.Lock()
	quick.missing = nil
	quick.Unlock()
}
