package shm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/internal/wire"
	"github.com/chorus-comms/chorus/secure"
)

func TestOptions(t *testing.T) {
	for _, bad := range []map[string]string{{"wait": "never"}, {"cma": "on"}, {"map": ""}, {"speed": "high"}} {
		if new(options).table().Set(Name, bad) == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
	o := defaults()
	err := o.table().Set(Name, map[string]string{"wait": "block", "cma": "off", "map": "auto"})
	if err != nil || o.cma != "off" || !o.maps() || o.policy(1, 1) != fabric.BlockPolicy {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestOtherHosts(t *testing.T) {
	checkLeaks(t)
	_, errs := openAll(4, func(c *fabric.Config) {
		if c.Rank == 1 || c.Rank == 3 {
			c.HostID = "there"
		}
	})
	for r, err := range errs {
		want := "ranks 1, 3"
		if r%2 == 1 {
			want = "ranks 0, 2"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v; want it to name %s", r, err, want)
		}
	}
}

// A rank that has failed to listen is named by all others.
func TestFailedRank(t *testing.T) {
	checkLeaks(t)
	_, errs := openAll(3, func(c *fabric.Config) {
		if c.Rank == 1 {
			c.Options = map[string]string{"wait": "wrong"}
		}
	})
	for r, err := range errs {
		if err == nil || r != 1 && !strings.Contains(err.Error(), "rank 1 can't take part: ") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// A rank that offers an endpoint but never comes is missed by the deadline, by name.
func TestMissingRank(t *testing.T) {
	checkLeaks(t)
	for _, missing := range []int{0, 2} {
		_, errs := openAll(3, func(c *fabric.Config) {
			c.Timeout = 300 * time.Millisecond
			if c.Rank != missing {
				return
			}
			exchange := c.Exchange
			c.Exchange = func(ctx context.Context, payload []byte) ([][]byte, error) {
				exchange(ctx, payload)
				return nil, errors.New("gone for lunch")
			}
		})
		for r, err := range errs {
			if r == missing {
				continue
			}
			// A rank whose deadline came a moment earlier may be missed along with it.
			named := regexp.MustCompile(fmt.Sprintf(`no link to ranks? ([\d, -]*\b)?%d(\b[\d, -]*)? of`, missing))
			if err == nil || !named.MatchString(err.Error()) {
				t.Errorf("rank %d without %d: %v", r, missing, err)
			}
		}
	}
}

// Unauthenticated connections to a rank are refused, and don't keep it from opening.
func TestStrangers(t *testing.T) {
	checkLeaks(t)
	var calls []*net.UnixConn
	ranks, errs := openAll(2, func(c *fabric.Config) {
		exchange := c.Exchange
		c.Exchange = func(ctx context.Context, payload []byte) ([][]byte, error) {
			all, err := exchange(ctx, payload)
			if c.Rank == 0 && err == nil {
				first := wire.ReadFields(all[0]) // fabric, failure, card
				first.Bytes()
				first.Bytes()
				var offer card
				json.Unmarshal(first.Rest(), &offer)
				greetings := [][]byte{nil, {0}, fields{Kind: frameControl}.encode([]byte("hello")),
					fields{Kind: frameGoodbye}.encode(nil), make([]byte, 100),
					fields{Kind: frameHello, Hello: hello{Rank: 1, World: 2, Locals: 2}, Size: 4096}.encode(nil)}
				for range 100 {
					greetings = append(greetings, greetings[:6]...)
				}
				for _, greeting := range greetings {
					conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: offer.Socket, Net: "unixpacket"})
					if err != nil {
						t.Error(err)
						continue
					}
					if greeting != nil {
						conn.Write(greeting)
						conn.Write(make([]byte, 32)) // instead of a proof
						conn.Write(greeting)
					}
					conn.CloseWrite()
					calls = append(calls, conn)
				}
			}
			return all, err
		}
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		c.SetDeadline(time.Now().Add(20 * time.Second))
		n, err := c.Read(make([]byte, 100)) // random bytes, for the proof
		if n > 0 {
			n, err = c.Read(make([]byte, 100))
		}
		if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a stranger was answered: %d bytes, %v", n, err)
		}
		c.Close()
	}
	closeAll(t, ranks)
}

// TestSecrets opens worlds of ranks that have the same secret, and others.
func TestSecrets(t *testing.T) {
	checkLeaks(t)
	s, err := secure.Parse(secure.Generate())
	if err != nil {
		t.Fatal(err)
	}
	ranks, errs := openAll(3, func(c *fabric.Config) { c.Security.Secret = s })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAll(t, ranks)
	_, errs = openAll(2, func(c *fabric.Config) {
		c.Security.Secret, c.Timeout = s.Derive(fmt.Sprint(c.Rank)), time.Second
	})
	if !errors.Is(errs[1], secure.ErrRefused) || errs[0] == nil {
		t.Errorf("different secrets: %v", errs)
	}
}

func TestSpaceArguments(t *testing.T) {
	checkLeaks(t)
	ranks := openWorld(t, 3, nil)
	f := ranks[1]
	for _, members := range [][]int{{}, {0, 2}, {1, 0}, {0, 1, 1}, {0, 1, 3}, {-1, 1}} {
		if _, err := f.Space(context.Background(), 1, members, 0); err == nil {
			t.Errorf("members %v were accepted", members)
		}
	}
	if _, err := f.Space(context.Background(), 1, []int{1}, -1); err == nil {
		t.Error("a negative stage was accepted")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := f.Space(ctx, 1, []int{0, 1, 2}, 64); err == nil || !strings.Contains(err.Error(), "rank 0") {
		t.Errorf("without rank 0: %v", err)
	}
	// Members that disagree tell each other.
	each(t, ranks[:2], func(f *Fabric, w *fabric.Waiter) error {
		if _, err := f.Space(context.Background(), 2, []int{0, 1}, 64*(1+f.rank)); err == nil ||
			!strings.Contains(err.Error(), "stage") {
			return errors.New("stages of different sizes were accepted")
		}
		return nil
	})
	closeAll(t, ranks)
}
