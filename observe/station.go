package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A station is where a rank answers those who want to see what it does: a unix socket in the directory of its dumps.
// Who may enter the directory may ask. A request is a line; the answer is a line of JSON, or a profile.
type station struct {
	l      net.Listener
	path   string
	closed chan struct{} // ends profiles that are under way
	wg     sync.WaitGroup
}

// The requests.
const (
	askLive = "live" // a Live
	askDump = "dump" // the path of the dump that was written for it
)

const (
	stationSuffix  = ".sock"
	stationTimeout = 5 * time.Second // of one who has connected
)

// openStation begins to answer for a rank. A rank does without it where there can be no socket.
func (r *Rank) openStation() *station {
	if os.MkdirAll(r.Dir, 0o777) != nil {
		return nil
	}
	path := filepath.Join(r.Dir, strings.TrimSuffix(fileName(r.job, r.rank), ".json")+stationSuffix)
	var l net.Listener
	err := shortly(path, func(short string) (err error) {
		if l, err = listenUnix(short); errors.Is(err, syscall.EADDRINUSE) {
			var c net.Conn
			if c, err = net.Dial("unix", short); err == nil { // another world's rank of this number
				c.Close()
				return syscall.EADDRINUSE
			}
			os.Remove(path) // of a process that is dead
			l, err = listenUnix(short)
		}
		return err
	})
	if err != nil {
		return nil
	}
	os.Chmod(path, 0o600)
	s := &station{l: l, path: path, closed: make(chan struct{})}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { r.answer(c, s.closed) })
		}
	})
	return s
}

// Sweep removes from a directory the sockets of ranks that are dead, as those are that were killed, and returns how
// many.
func Sweep(dir string) (removed int) {
	paths, _ := matching(dir, "*_rank_*"+stationSuffix)
	for _, path := range paths {
		var c net.Conn
		err := shortly(path, func(short string) (err error) {
			c, err = net.DialTimeout("unix", short, stationTimeout)
			return err
		})
		switch {
		case err == nil:
			c.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			if os.Remove(path) == nil {
				removed++
			}
		}
	}
	return removed
}

func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false) // the path is another one then
	}
	return l, err
}

func (s *station) close() {
	if s == nil {
		return
	}
	s.l.Close()
	close(s.closed)
	os.Remove(s.path)
	s.wg.Wait()
}

// answer answers one request; closed is the end of the station.
func (r *Rank) answer(c net.Conn, closed <-chan struct{}) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(stationTimeout))
	line, err := bufio.NewReader(io.LimitReader(c, 64)).ReadString('\n')
	if err != nil {
		return
	}
	var reply any
	what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch what {
	case askLive:
		reply = r.Live()
	case askDump:
		path, err := r.dump(r.Dir, "request")
		if err != nil {
			return
		}
		reply = path
	case askProfile:
		name, seconds := parseProfile(rest)
		profile(c, name, seconds, closed)
		return
	default:
		return
	}
	json.NewEncoder(c).Encode(reply)
}

// Answer is what came of asking a rank.
type Answer struct {
	Path string // of the rank's socket
	Live *Live  // nil if it didn't answer
	Dump string // the path of its dump
	Err  error

	State string // of a rank that didn't answer: "stopped", if that's seen; else empty
}

// AskLive asks all ranks whose dumps would go to dir what they do, at once. Ranks that don't answer before ctx ends are
// stuck in the kernel or stopped; those that refuse are dead.
func AskLive(ctx context.Context, dir string) ([]Answer, error) {
	return askAll(ctx, dir, askLive, func(a *Answer) any { a.Live = new(Live); return a.Live })
}

// AskDumps has all ranks whose dumps would go to dir write them now.
func AskDumps(ctx context.Context, dir string) ([]Answer, error) {
	return askAll(ctx, dir, askDump, func(a *Answer) any { return &a.Dump })
}

func askAll(ctx context.Context, dir, what string, into func(*Answer) any) ([]Answer, error) {
	paths, err := matching(dir, "*_rank_*"+stationSuffix)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	answers := make([]Answer, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		a := &answers[i]
		a.Path = path
		wg.Go(func() {
			if a.Err = ask(ctx, path, what, into(a)); a.Err != nil {
				a.Live = nil
				a.State = stateOf(path)
			}
		})
	}
	wg.Wait()
	return answers, nil
}

// stopped is the state of a process that a signal or a debugger has stopped.
const stopped = "stopped"

// answerLimit bounds what is read of an answer.
const answerLimit = 16 << 20

func ask(ctx context.Context, path, what string, into any) error {
	return connect(ctx, path, what,
		func(c net.Conn) error { return json.NewDecoder(io.LimitReader(c, answerLimit)).Decode(into) })
}

// connect sends a request and has f read the answer.
func connect(ctx context.Context, path, what string, f func(c net.Conn) error) error {
	return shortly(path, func(short string) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", short)
		if err != nil {
			return err
		}
		defer c.Close()
		if d, ok := ctx.Deadline(); ok {
			c.SetDeadline(d)
		}
		defer context.AfterFunc(ctx, func() { c.Close() })()
		if _, err := io.WriteString(c, what+"\n"); err != nil {
			return err
		}
		return f(c)
	})
}
