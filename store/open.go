package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/secure"
)

// OpenOptions are what [Open] gives every store, beside its address.
type OpenOptions struct {
	// Timeout bounds Open, and on the store calls whose context has no deadline; 0 is DefaultTimeout.
	Timeout time.Duration
	// Security protects the connections; nil: what the environment says (CHORUS_SECRET_FILE and its neighbors).
	Security *secure.Policy
}

// Policy returns what protects the connections.
func (o OpenOptions) Policy() (secure.Policy, error) {
	if o.Security != nil {
		return *o.Security, nil
	}
	p, err := secure.Environment()
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return p, err
}

// An Opener opens the store at an address, which begins with the scheme that the Opener is registered for. ctx has a
// deadline. The error for an address or options that make no sense wraps [ErrOptions].
type Opener func(ctx context.Context, address string, opts OpenOptions) (Store, error)

// ErrOptions is wrapped by the errors of Open for an address or for options that it can't use.
var ErrOptions = errors.New("store: invalid address or options")

var openers = struct {
	sync.Mutex
	byScheme map[string]Opener
}{byScheme: map[string]Opener{"tcp": openTCP, "file": openFileURL, "hash": openHash}}

// Register makes addresses of a scheme known to [Open], and with it to CHORUS_STORE and to chorus_store_open. A package
// of stores calls it in its init. It panics if the scheme is taken.
func Register(scheme string, open Opener) {
	openers.Lock()
	defer openers.Unlock()
	if scheme == "" || open == nil || openers.byScheme[scheme] != nil {
		panic(fmt.Sprintf("store: Register(%q): the scheme is empty or taken, or there is no function", scheme))
	}
	openers.byScheme[scheme] = open
}

// Schemes returns the schemes that Open knows, in order.
func Schemes() []string {
	openers.Lock()
	defer openers.Unlock()
	var names []string
	for s := range openers.byScheme {
		names = append(names, s)
	}
	slices.Sort(names)
	return names
}

// Open opens the store at an address:
//
//	tcp://HOST:PORT          as a client of a TCPServer or of PyTorch's TCPStore; ?plain for one that knows no secret
//	tcp://HOST:PORT?listen   serves it as well, at all addresses if HOST is empty
//	file:///PATH             a FileStore
//	hash:                    a new HashStore
//
// Other packages register more, such as adapters/etcd. The caller closes the store.
func Open(ctx context.Context, address string, opts OpenOptions) (Store, error) {
	ctx, cancel := deadline(ctx, opts.Timeout)
	defer cancel()
	scheme, _, _ := strings.Cut(address, ":")
	openers.Lock()
	open := openers.byScheme[scheme]
	openers.Unlock()
	if open == nil {
		return nil, fmt.Errorf("%w: scheme %q: this program has stores of the schemes %s; the package of any other must be "+
			"imported", ErrOptions, scheme, strings.Join(Schemes(), ", "))
	}
	return open(ctx, address, opts)
}

func openHash(_ context.Context, _ string, opts OpenOptions) (Store, error) {
	return NewHash(opts.Timeout), nil
}

func openFileURL(ctx context.Context, address string, opts OpenOptions) (Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if u.Path == "" || u.Host != "" {
		return nil, fmt.Errorf("%w: %q has no path, or a host before it: want file:///PATH", ErrOptions, address)
	}
	s, err := OpenFile(ctx, u.Path, FileOptions{Timeout: opts.Timeout})
	if errors.Is(err, errNotLog) {
		err = fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func openTCP(ctx context.Context, address string, opts OpenOptions) (Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if u.Port() == "" || u.Port() == "0" {
		return nil, fmt.Errorf("%w: %q has no port", ErrOptions, address)
	}
	policy, err := opts.Policy()
	if err != nil {
		return nil, err
	}
	if u.Query().Has("plain") { // PyTorch's server knows nothing of secrets
		policy = secure.Policy{}
	}
	if !u.Query().Has("listen") {
		return DialTCP(ctx, u.Host, TCPOptions{Timeout: opts.Timeout, Dialect: DialectProbe, Security: policy})
	}
	if host := u.Hostname(); host != "" {
		if err := policy.Check(host); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
	}
	server, err := ListenTCP(u.Host, ServerOptions{Timeout: opts.Timeout, Security: policy})
	if err != nil {
		return nil, fmt.Errorf("store: %q can't be served: %w", address, err)
	}
	return served{server.Local(), server}, nil
}

// served is a store that this process serves.
type served struct {
	*HashStore
	server *TCPServer
}

func (s served) Close() error { return s.server.Close() }
