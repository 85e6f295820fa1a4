package bootstrap

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// openLocal opens the store at a socket that rank 0 makes. The socket's name has two parts. The first follows from
// the job: the other ranks look for it among the sockets of this host. The second is random, so that no other user
// can take the name first. Sockets of other users with the same first part are skipped.
func openLocal(ctx context.Context, info Info, opts Options) (store.Store, error) {
	if !abstractSockets {
		return nil, fmt.Errorf("bootstrap: %s does not say where rank 0 is, which is found by itself on Linux only (set MASTER_ADDR and MASTER_PORT)", info.Launcher)
	}
	name, err := socketName(info)
	if err != nil {
		return nil, err
	}
	if info.Rank != 0 {
		st, err := store.DialTCP(ctx, name, store.TCPOptions{Timeout: opts.Timeout, Security: *opts.Security,
			Name: info.clientName(), Dial: dialLocal})
		if err != nil {
			return nil, fmt.Errorf("bootstrap: rank %d can't reach rank 0: %w", info.Rank, err)
		}
		return st, nil
	}
	if err := checkNoOtherRankZero(ctx, info, name, ""); err != nil {
		return nil, err
	}
	mine := name + "-" + rand.Text()
	l, err := net.Listen("unix", mine)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: rank 0 can't serve: %w", err)
	}
	if err := checkNoOtherRankZero(ctx, info, name, mine); err != nil { // two at the same time find each other now
		l.Close()
		return nil, err
	}
	return serve(sameUserListener{l, new(secure.AcceptLimiter)}, opts)
}

// checkNoOtherRankZero returns an error if a process of this user serves the job at another socket than mine.
func checkNoOtherRankZero(ctx context.Context, info Info, name, mine string) error {
	names, err := listeners(name + "-")
	if err != nil {
		return fmt.Errorf("bootstrap: rank 0 can't serve: %w", err)
	}
	for _, other := range names {
		if other == mine {
			continue
		}
		c, err := dialSameUser(ctx, "unix", other)
		if err != nil {
			continue // another user's, or gone
		}
		_, pid, _ := secure.Peer(c.(*net.UnixConn))
		c.Close()
		return fmt.Errorf("bootstrap: rank 0 can't serve: another process (pid %d) is rank 0 of job %s already", pid,
			info.RunID)
	}
	return nil
}

// dialLocal connects to the socket at which a process of this user serves the job that name stands for.
func dialLocal(ctx context.Context, _, name string) (net.Conn, error) {
	names, err := listeners(name + "-")
	if err != nil {
		return nil, err
	}
	err = errors.New("no process serves the job yet")
	for _, n := range names {
		c, failed := dialSameUser(ctx, "unix", n)
		if failed == nil {
			return c, nil
		}
		// Not an ErrOtherUser: rank 0 may still come.
		err = fmt.Errorf("no process of this user serves the job; at %s: %v", n, failed)
	}
	return nil, err
}

// listeners returns the sockets of the abstract name space whose names begin with prefix and at which a process
// listens.
func listeners(prefix string) ([]string, error) {
	f, err := os.Open("/proc/self/net/unix")
	if err != nil {
		return nil, fmt.Errorf("the sockets of this host can't be listed (set MASTER_ADDR and MASTER_PORT): %w", err)
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path, of which the flag __SO_ACCEPTCON is what listens.
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[3] == "00010000" && strings.HasPrefix(fields[7], prefix) {
			names = append(names, fields[7])
		}
	}
	return names, lines.Err()
}

// socketName is how names of sockets in the abstract name space begin for the ranks of one job, and of no other. They
// need no clean-up.
func socketName(info Info) (string, error) {
	job := info.RunID
	if job == "" {
		var err error
		if job, err = launcherProcess(os.Getpid(), info.rankVar); err != nil {
			return "", fmt.Errorf("bootstrap: %s does not name the job, and its process can't be found (set MASTER_ADDR and MASTER_PORT): %w", info.Launcher, err)
		}
	}
	sum := sha256.Sum256(fmt.Append(nil, os.Getuid(), "\x00", info.Launcher, "\x00", job, "\x00", info.RestartCount,
		"\x00", info.Size))
	return "@chorus-store-" + hex.EncodeToString(sum[:16]), nil
}

// launcherProcess identifies the process that started the ranks: the nearest
// ancestor whose environment does not have the variable with the rank. There may
// be shells in between. The time of its start tells it from a later process with
// the same number.
func launcherProcess(pid int, rankVar string) (string, error) {
	for range 64 {
		stat, err := procStat(pid)
		if err != nil {
			return "", err
		}
		parent := stat.parent
		if parent <= 1 {
			return "", errors.New("it is not among the ancestors of this process")
		}
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/environ")
		if err != nil {
			return "", err
		}
		if !strings.Contains("\x00"+string(environ), "\x00"+rankVar+"=") {
			stat, err := procStat(parent)
			return fmt.Sprintf("pid %d started %s", parent, stat.start), err
		}
		pid = parent
	}
	return "", errors.New("too many ancestors")
}

// processStat is what the kernel says of a process (proc(5), fields 3, 4 and 22 of stat).
type processStat struct {
	state  string // such as "Z" of one that has ended, and that its parent hasn't waited for
	parent int
	start  string // in ticks since boot
}

// procStat reads it. The error matches os.ErrNotExist if there is no such process, or no /proc.
func procStat(pid int) (processStat, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processStat{}, err
	}
	// The second field is the program's name in parentheses and may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return processStat{}, fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	parent, err := strconv.Atoi(fields[1])
	return processStat{state: fields[0], parent: parent, start: fields[19]}, err
}

// sameUserListener closes connections of other users: names in the abstract name
// space have no permissions.
type sameUserListener struct {
	net.Listener
	limiter *secure.AcceptLimiter
}

func (l sameUserListener) Accept() (net.Conn, error) {
	for {
		l.limiter.Wait(context.Background())
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		pending := l.limiter.Add(c)
		err = secure.SameUser(c)
		pending.Done(err == nil)
		if err == nil {
			return c, nil
		}
		c.Close()
	}
}

// dialSameUser connects to name if a process of the same user listens there.
func dialSameUser(ctx context.Context, _, name string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := secure.SameUser(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
