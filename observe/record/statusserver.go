package record

import (
	"bufio"
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
	AskLive = "live" // a Live
	AskDump = "dump" // the path of the dump that was written for it
)

const statusTimeout = 5 * time.Second // of one connection

// openStatusServer begins to answer for a rank. A rank does without it where there can be no socket.
func (r *Rank) openStatusServer() *statusServer {
	if os.MkdirAll(r.Dir, 0o777) != nil {
		return nil
	}
	sweep(r.Dir, CleanName(r.job), processBegan)
	l, path, err := r.listen()
	if errors.Is(err, syscall.EADDRINUSE) && !slices.ContainsFunc(ranks.all, func(o *Rank) bool {
		return o.Dir == r.Dir && o.name == r.name
	}) { // a process of another job of that name: its files are left alone
		r.name = FileName(fmt.Sprintf("%s.%d", r.job, os.Getpid()), r.rank)
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
	path = filepath.Join(r.Dir, r.name+SocketSuffix)
	err = WithShortPath(path, func(short string) (err error) {
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
		job = CleanName(job)
	}
	return sweep(dir, job, time.Now())
}

// sweep is Sweep of files that are older than a moment.
func sweep(dir, job string, before time.Time) (removed int) {
	of := RankMark
	if job != "" {
		of = job + RankMark
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, unfinished := strings.CutPrefix(e.Name(), unfinishedMark)
		socket := strings.HasSuffix(name, SocketSuffix) && e.Type() == fs.ModeSocket
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
	err := WithShortPath(path, func(short string) (err error) {
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
	case AskLive:
		reply = r.Live()
	case AskDump:
		path, err := r.dump(r.Dir, "request")
		if reply = path; err != nil {
			reply = Refusal{err.Error()}
		}
	case AskProfile:
		name, seconds := parseProfile(rest)
		profile(c, name, seconds, closed)
		return
	default:
		return
	}
	json.NewEncoder(c).Encode(reply)
}

// Refusal is the answer of a rank that can't carry out a request.
type Refusal struct {
	Error string `json:"error"`
}
