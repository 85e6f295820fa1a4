package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/secure"
	"github.com/chorus-comms/chorus/store"
)

// Options configures Open.
type Options struct {
	// Timeout bounds Open and, on the store, calls whose context has no
	// deadline; 0 is store.DefaultTimeout.
	Timeout time.Duration
	// Bind is the host or address that rank 0 listens on. Empty means loopback
	// if MasterAddr is loopback, and all addresses otherwise, for which the job needs a secret: see
	// [secure.Policy.Check].
	Bind string
	// Linger is how long rank 0 goes on serving in Close while others are still
	// connected; 0 is 5 s.
	Linger time.Duration
	// Security protects stores that this process serves, or that another process of Chorus does; nil: what the environment
	// says (CHORUS_SECRET_FILE and its neighbors).
	Security *secure.Policy
	// OnStarved, if not nil, is told each time that this process has no descriptor for a client of the store that Host
	// serves.
	OnStarved func(error)
	// Logger is told what the server has to say; nil is silence.
	Logger *slog.Logger
	// Store is the address of the store where the ranks meet, as [store.Open] takes it; empty: what CHORUS_STORE says,
	// or else the store that the launcher or rank 0 serves. Each job has a prefix of its own in it.
	Store string
}

// Open opens the store at which the ranks of a job meet: the one whose address
// is given. Otherwise, where the launcher serves one, all ranks connect; or rank 0
// serves and the others connect, trying until their deadline.
// Without a master's address, ranks on one host meet at a socket in
// the abstract name space. It's found by the name of the job, admits only the same user, and
// vanishes with rank 0. A world of one needs no socket.
//
// The store of rank 0 must be closed after those of the others; its Close waits
// for them, but not longer than Linger.
//
// After a restart by torchrun, whose store outlives the ranks, the store is a
// prefix "attempt_N" of the launcher's, so that keys of the former attempt are
// out of sight.
func Open(ctx context.Context, info Info, opts Options) (store.Store, error) {
	if err := CheckWorld(info.Rank, info.Size); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	if err := opts.secure(); err != nil {
		return nil, err
	}
	if opts.Store == "" {
		c, err := config.Load(nil)
		if err != nil {
			return nil, err
		}
		opts.Store = c.Store
	}
	if _, ok := ctx.Deadline(); !ok && opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.Timeout)
		defer cancel()
	}
	switch {
	case info.Size == 1:
		return store.NewHash(opts.Timeout), nil
	case opts.Store != "":
		return openAddress(ctx, info, opts)
	case info.AgentStore:
		return openAgent(ctx, info, opts)
	case info.MasterAddr != "":
		st, err := openMaster(ctx, info, opts)
		if err == nil && info.shared {
			st = jobStore{store.NewPrefix(fmt.Sprintf("job_%s_%d", info.RunID, info.RestartCount), st), st}
		}
		return st, err
	case info.OneHost():
		return openLocal(ctx, info, opts)
	}
	return nil, fmt.Errorf("bootstrap: %s gives rank %d of %d no address where the ranks could meet, and does not say that they share one host: set MASTER_ADDR to the host of rank 0, and MASTER_PORT", info.Launcher, info.Rank, info.Size)
}

// secure takes from the environment what protects the stores, unless the options say it.
func (o *Options) secure() error {
	if o.Security != nil {
		return nil
	}
	p, err := secure.Environment()
	if err == nil && p.TLS != nil && !p.Authenticates() {
		err = p.Check("") // says what is missing
	}
	o.Security = &p
	return err
}

// openAddress opens the store whose address the user has given, in which there may be keys of other jobs, and of
// earlier runs of this one.
func openAddress(ctx context.Context, info Info, opts Options) (store.Store, error) {
	st, err := store.Open(ctx, opts.Store, store.OpenOptions{Timeout: opts.Timeout, Security: opts.Security})
	if err != nil {
		return nil, fmt.Errorf("bootstrap: rank %d can't open the store that CHORUS_STORE names: %w", info.Rank, err)
	}
	return jobStore{store.NewPrefix(info.Key(), st), st}, nil
}

// jobStore is a job's prefix in a store that other jobs may use, which owns its connection.
type jobStore struct {
	*store.PrefixStore
	base store.Store
}

func (j jobStore) Close() error { return j.base.Close() }

// openAgent connects to the launcher's store.
func openAgent(ctx context.Context, info Info, opts Options) (store.Store, error) {
	if info.MasterAddr == "" {
		return nil, errors.New("bootstrap: TORCHELASTIC_USE_AGENT_STORE=True, but MASTER_ADDR is not set")
	}
	o := store.TCPOptions{Timeout: opts.Timeout, Security: *opts.Security, Name: info.clientName()}
	if info.Launcher != ChorusRun && !info.direct {
		// A torchrun of any version, which knows nothing of secrets.
		o.Dialect, o.Security = store.DialectProbe, secure.Policy{}
	}
	st, err := store.DialTCP(ctx, info.master(), o)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: rank %d can't reach the launcher's store: %w", info.Rank, err)
	}
	if info.RestartCount > 0 {
		return attemptStore{store.NewPrefix("attempt_"+strconv.Itoa(info.RestartCount), st), st}, nil
	}
	return st, nil
}

// attemptStore is a prefix that owns its store.
type attemptStore struct {
	*store.PrefixStore
	base store.Store
}

func (a attemptStore) Close() error { return a.base.Close() }

// Launchers returns the store that the launcher serves, with the keys of programs that aren't Chorus, of one that Open
// has opened; of any other it returns that one.
func Launchers(st store.Store) store.Store {
	if a, ok := st.(attemptStore); ok {
		return a.base
	}
	return st
}

// openMaster meets at MasterAddr. Where nothing says who may connect, only what is on this host can.
func openMaster(ctx context.Context, info Info, opts Options) (store.Store, error) {
	if err := opts.Security.Check(info.MasterAddr); err != nil && !loopbackOnly(info.MasterAddr) {
		if !info.OneHost() {
			return nil, fmt.Errorf("bootstrap: the ranks meet at MASTER_ADDR: %w", err)
		}
		info.MasterAddr = "127.0.0.1"
	}
	if info.Rank != 0 {
		// If rank 0 goes, its store doesn't come back. A store of PyTorch counts the ranks that come, and waits
		// for them.
		st, err := store.DialTCP(ctx, info.master(), store.TCPOptions{Timeout: opts.Timeout, Security: *opts.Security,
			WorldSize: info.Size, Reconnect: time.Nanosecond, Name: info.clientName()})
		if err != nil {
			return nil, fmt.Errorf("bootstrap: rank %d can't reach rank 0: %w", info.Rank, err)
		}
		return st, nil
	}
	bind := opts.Bind
	if bind == "" && (secure.Loopback(info.MasterAddr) || opts.Security.Check("") != nil) {
		bind = info.MasterAddr
	}
	at := net.JoinHostPort(bind, strconv.Itoa(info.MasterPort))
	l, err := net.Listen("tcp", at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("bootstrap: rank 0 can't serve at %s: another program%s listens there; choose another MASTER_PORT: %w", at, portOwner(at), err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("bootstrap: rank 0 can't serve at %s: this host does not have that address: %w", at, err)
	case err != nil:
		return nil, fmt.Errorf("bootstrap: rank 0 can't serve: %w", err)
	}
	return serve(l, opts)
}

// portOwner says which user's process listens at an address of this host. A process of this user may be an earlier run
// of the job.
func portOwner(at string) string {
	a, err := net.ResolveTCPAddr("tcp", at)
	if err != nil {
		return ""
	}
	ap := a.AddrPort()
	if !ap.Addr().IsValid() || ap.Addr().IsUnspecified() {
		ap = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port())
	}
	uid, err := secure.PortOwner(ap)
	switch {
	case err != nil:
		return ", perhaps an earlier run of this job, or one that comes as rank 0, too,"
	case uid != os.Geteuid():
		return fmt.Sprintf(" of another user (uid %d, not %d)", uid, os.Geteuid())
	}
	return " of this user, perhaps an earlier run of this job, or one that comes as rank 0, too,"
}

// loopbackOnly reports whether a name stands for loopback addresses alone, as the name of the host itself does on many
// systems.
func loopbackOnly(host string) bool {
	ips, err := net.LookupIP(host)
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return err == nil && len(ips) > 0
}

// serve makes this process the one that serves.
func serve(l net.Listener, opts Options) (store.Store, error) {
	s, err := store.Serve(l, store.ServerOptions{Timeout: opts.Timeout, Security: *opts.Security, Logger: opts.Logger,
		OnRefused: opts.logRefused})
	if err != nil {
		l.Close()
		return nil, err
	}
	linger := opts.Linger
	if linger <= 0 {
		linger = 5 * time.Second
	}
	return &served{HashStore: s.Local(), server: s, linger: linger}, nil
}

// logRefused logs that a client was refused, so that the ranks that wait for it know why before their deadline.
func (o *Options) logRefused(err error) {
	log := o.Logger
	if log == nil {
		log = slog.Default()
	}
	log.Warn(fmt.Sprintf("chorus: at the store of rank 0: %v", err))
}

// clientName is what a rank calls itself.
func (i Info) clientName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("rank %d of %d on %s, pid %d", i.Rank, i.Size, host, os.Getpid())
}

// served is the store of the rank that serves it.
type served struct {
	*store.HashStore
	server *store.TCPServer
	linger time.Duration
}

// Close waits for the other ranks and ends the server.
func (s *served) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.linger)
	defer cancel()
	return errors.Join(s.server.Drain(ctx), s.server.Close())
}
