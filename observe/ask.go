package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/observe/record"
)

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
	return askAll(ctx, dir, record.AskLive, (*Answer).readLive)
}

func (a *Answer) readLive(reply []byte) error {
	l := new(Live)
	if err := json.Unmarshal(reply, l); err != nil {
		return fmt.Errorf("observe: not an answer: %w", err)
	}
	if err := checkLive(l, a.Path); err != nil {
		return err
	}
	a.Live = l
	return nil
}

// AskDumps has all ranks whose dumps would go to dir write them now.
func AskDumps(ctx context.Context, dir string) ([]Answer, error) {
	return askAll(ctx, dir, record.AskDump, func(a *Answer, reply []byte) error {
		var no record.Refusal
		if json.Unmarshal(reply, &no) == nil {
			return &RefusedError{no.Error}
		}
		return json.Unmarshal(reply, &a.Dump)
	})
}

func askAll(ctx context.Context, dir, what string, read func(*Answer, []byte) error) ([]Answer, error) {
	paths, err := matching(dir, "*"+record.RankMark+"*"+record.SocketSuffix)
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
	return record.WithShortPath(path, func(short string) error {
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

// Profile writes a profile, as package runtime/pprof names them, or "profile" for one of the CPU over some seconds, of
// the process of a rank whose dumps would go to dir.
func Profile(ctx context.Context, w io.Writer, dir string, rank int, name string, seconds int) error {
	if name == "" || strings.ContainsAny(name, " \n") || seconds > record.LongestProfile {
		return fmt.Errorf("observe: no profile %q over %d seconds", name, seconds)
	}
	paths, err := matching(dir, fmt.Sprint("*", record.RankMark, rank, record.SocketSuffix))
	if err != nil || len(paths) != 1 {
		return errors.Join(fmt.Errorf("observe: rank %d does not run here", rank), err)
	}
	var n int64
	err = connect(ctx, paths[0], fmt.Sprintf("%s %s %d", record.AskProfile, name, seconds), func(c net.Conn) (err error) {
		n, err = io.Copy(w, c)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("observe: rank %d has no profile %q, or one is being made", rank, name)
	}
	return err
}

// checkLive refuses an answer that no rank gives whose socket has this path.
func checkLive(l *Live, path string) error {
	if l.Size < 1 || l.Size > maxRanks || l.Rank < 0 || l.Rank >= l.Size {
		return fmt.Errorf("observe: an answer of rank %d of %d", l.Rank, l.Size)
	}
	if rank, ok := rankOfSocket(path); !ok || rank != l.Rank {
		return fmt.Errorf("observe: an answer of rank %d from the socket of another", l.Rank)
	}
	for i := range l.Comms {
		c := &l.Comms[i]
		if err := checkMembers(c.Name, c.Rank, c.Members, l.Rank, l.Size); err != nil {
			return err
		}
	}
	if l.Where != nil && (len(l.Where.Ranks) != 1 || l.Where.Ranks[0] != l.Rank) {
		return fmt.Errorf("observe: rank %d tells where ranks %v are", l.Rank, l.Where.Ranks)
	}
	return nil
}
