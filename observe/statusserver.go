package observe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A statusServer answers questions about what a rank does, at a unix socket in the directory of its dumps. Every
// process that may enter the directory may ask. A request is a line; the answer is a line of JSON, or a profile.
type statusServer struct {
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

const statusTimeout = 5 * time.Second // of one connection

// openStatusServer begins to answer for a rank. A rank does without it where there can be no socket.
func (r *Rank) openStatusServer() *statusServer {
	if os.MkdirAll(r.Dir, 0o777) != nil {
		return nil
	}
	sweep(r.Dir, cleanName(r.job), processBegan)
	l, path, err := r.listen()
	if errors.Is(err, syscall.EADDRINUSE) && !slices.ContainsFunc(ranks.all, func(o *Rank) bool {
		return o.Dir == r.Dir && o.name == r.name
	}) { // a process of another job of that name: its files are left alone
		r.name = fileName(fmt.Sprintf("%s.%d", r.job, os.Getpid()), r.rank)
		l, path, err = r.listen()
	}
	if err != nil {
		return nil
	}
	os.Chmod(path, 0o600)
	s := &statusServer{l: l, path: path, closed: make(chan struct{})}
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

// listen takes the path of the rank's socket, also from a process that is dead.
func (r *Rank) listen() (l net.Listener, path string, err error) {
	path = filepath.Join(r.Dir, r.name+socketSuffix)
	err = withShortPath(path, func(short string) (err error) {
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
	return l, path, err
}

// Sweep removes the files that dead ranks have left in a directory, as killed ranks do: sockets, and unfinished dumps.
// With a job's name it removes that job's alone. It returns the number of files.
func Sweep(dir, job string) (removed int) {
	if job != "" {
		job = cleanName(job)
	}
	return sweep(dir, job, time.Now())
}

// sweep is Sweep of files that are older than a moment.
func sweep(dir, job string, before time.Time) (removed int) {
	of := rankMark
	if job != "" {
		of = job + rankMark
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, unfinished := strings.CutPrefix(e.Name(), unfinishedMark)
		socket := strings.HasSuffix(name, socketSuffix) && e.Type() == fs.ModeSocket
		if !strings.Contains(name, of) || job != "" && !strings.HasPrefix(name, of) || !unfinished && !socket {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if i, err := e.Info(); err != nil || !i.ModTime().Before(before) || socket && !dead(path) {
			continue
		}
		if os.Remove(path) == nil {
			removed++
		}
	}
	return removed
}

// dead reports whether a socket has no listener.
func dead(path string) bool {
	var c net.Conn
	err := withShortPath(path, func(short string) (err error) {
		c, err = net.DialTimeout("unix", short, statusTimeout)
		return err
	})
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false) // the path may be a short form, which is gone by then
	}
	return l, err
}

func (s *statusServer) close() {
	if s == nil {
		return
	}
	s.l.Close()
	close(s.closed)
	os.Remove(s.path)
	s.wg.Wait()
}

// answer answers one request; closed is the end of the server.
func (r *Rank) answer(c net.Conn, closed <-chan struct{}) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(statusTimeout))
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
		if reply = path; err != nil {
			reply = refusal{err.Error()}
		}
	case askProfile:
		name, seconds := parseProfile(rest)
		profile(c, name, seconds, closed)
		return
	default:
		return
	}
	json.NewEncoder(c).Encode(reply)
}

// refusal is the answer of a rank that can't carry out a request.
type refusal struct {
	Error string `json:"error"`
}

// RefusedError is why a rank could not write its dump.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

// Answer is a rank's answer to a request, or why there's none.
type Answer struct {
	Path string    // of the rank's socket
	Born time.Time // when that was made
	Live *Live     // nil if it didn't answer
	Dump string    // the path of its dump
	Err  error     // a *RefusedError if it answered that it can't

	State string // of a rank that didn't answer: "stopped", if that's seen; else empty
}

// AskLive asks all ranks whose dumps would go to dir what they do, at once. Ranks that don't answer before ctx ends are
// stuck in the kernel or stopped; those that refuse are dead.
func AskLive(ctx context.Context, dir string) ([]Answer, error) {
	return askAll(ctx, dir, askLive, (*Answer).readLive)
}

func (a *Answer) readLive(reply []byte) error {
	l := new(Live)
	if err := json.Unmarshal(reply, l); err != nil {
		return fmt.Errorf("observe: not an answer: %w", err)
	}
	if err := l.check(a.Path); err != nil {
		return err
	}
	a.Live = l
	return nil
}

// AskDumps has all ranks whose dumps would go to dir write them now.
func AskDumps(ctx context.Context, dir string) ([]Answer, error) {
	return askAll(ctx, dir, askDump, func(a *Answer, reply []byte) error {
		var no refusal
		if json.Unmarshal(reply, &no) == nil {
			return &RefusedError{no.Error}
		}
		return json.Unmarshal(reply, &a.Dump)
	})
}

func askAll(ctx context.Context, dir, what string, read func(*Answer, []byte) error) ([]Answer, error) {
	paths, err := matching(dir, "*"+rankMark+"*"+socketSuffix)
	if err != nil {
		return nil, fmt.Errorf("observe: %w", err)
	}
	answers := make([]Answer, len(paths))
	var wg sync.WaitGroup
	for i, path := range paths {
		a := &answers[i]
		a.Path = path
		if i, err := os.Lstat(path); err == nil {
			a.Born = i.ModTime()
		}
		wg.Go(func() {
			var reply []byte
			if reply, a.Err = ask(ctx, path, what); a.Err == nil {
				a.Err = read(a, reply)
			}
			if a.Err != nil {
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

func ask(ctx context.Context, path, what string) (reply json.RawMessage, err error) {
	err = connect(ctx, path, what,
		func(c net.Conn) error { return json.NewDecoder(io.LimitReader(c, answerLimit)).Decode(&reply) })
	return reply, err
}

// connect sends a request and has f read the answer.
func connect(ctx context.Context, path, what string, f func(c net.Conn) error) error {
	return withShortPath(path, func(short string) error {
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
