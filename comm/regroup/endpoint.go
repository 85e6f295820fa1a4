package regroup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/store"
)

// Options configures an Endpoint.
type Options struct {
	// Master is a host by whose route the address for other hosts is chosen; without one the endpoint is reachable on
	// this host only.
	Master string
	// At, if not nil, is called at each step of an attempt, with its name: for tests that fail there.
	At func(step string)
}

// Endpoint is a process's part in finding a new world. It outlives the worlds that come of it. Its methods may be
// called from any goroutine, but it takes part in one attempt at a time.
type Endpoint struct {
	id     string
	host   string
	opts   Options
	hosted *bootstrap.Hosted

	starved chan error // has the last reason why this process couldn't take a member's connection, until it's read

	mu      sync.Mutex
	clients map[store.Store]struct{}
	closed  bool
	busy    bool
	recent  []string // attempts whose keys are kept: members may still ask for how they ended
}

// storeTimeout bounds calls of a store that have no deadline of their own, of which there are none.
const storeTimeout = time.Minute

// Open begins to serve an endpoint.
func Open(opts Options) (*Endpoint, error) {
	starved := make(chan error, 1)
	tell := func(err error) {
		select {
		case starved <- fmt.Errorf("taking the call of another member: %w", err):
		default:
		}
	}
	hosted, err := bootstrap.Host(opts.Master, bootstrap.Options{Timeout: storeTimeout, OnStarved: tell})
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	return &Endpoint{id: rand.Text(), host: host, opts: opts, hosted: hosted, starved: starved,
		clients: map[store.Store]struct{}{}}, nil
}

// Starved has an error each time that this process had no descriptor for another member that called. It's for the
// caller between attempts; an attempt looks there itself, and fails.
func (s *Endpoint) Starved() <-chan error { return s.starved }

// Refresh forgets that the process has been without descriptors.
func (s *Endpoint) Refresh() {
	select {
	case <-s.starved:
	default:
	}
}

// Member returns this process as a member that has a place in an old world, or none.
func (s *Endpoint) Member(p OldPlace) Member {
	return Member{ID: s.id, Place: p, Host: s.host, PID: os.Getpid(), Address: s.hosted.Address()}
}

// ID identifies the endpoint: the ID of its Member.
func (s *Endpoint) ID() string { return s.id }

// Local is the store that the endpoint serves. Keys that begin with "attempt/" are reserved. Other keys with the
// uuid of an attempt between their first two slashes are deleted with that attempt.
func (s *Endpoint) Local() store.Store { return s.hosted.Local() }

// Reach connects to another member's store until release is called or the endpoint is closed. Refused connections
// are [bootstrap.ErrGone].
func (s *Endpoint) Reach(ctx context.Context, m Member) (st store.Store, release func(), err error) {
	if m.ID == s.id {
		return s.Local(), func() {}, nil
	}
	if st, err = bootstrap.Reach(ctx, m.Address, bootstrap.Options{Timeout: storeTimeout}); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		st.Close()
		return nil, nil, store.ErrClosed
	}
	s.clients[st] = struct{}{}
	return st, func() {
		s.mu.Lock()
		delete(s.clients, st)
		s.mu.Unlock()
		st.Close()
	}, nil
}

// begin makes room for the keys of an attempt: those of all but the last before it are forgotten.
func (s *Endpoint) begin(ctx context.Context, uuid string) error {
	const kept = 2
	s.mu.Lock()
	s.recent = append(s.recent, uuid)
	s.recent = s.recent[max(len(s.recent)-kept, 0):]
	recent := slices.Clone(s.recent)
	s.mu.Unlock()
	st := s.hosted.Local()
	keys, err := st.ListKeys(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		// Keys are attempt/uuid/..., and others that have the uuid of an attempt in their second place.
		if parts := strings.SplitN(key, "/", 3); len(parts) == 3 && !slices.Contains(recent, parts[1]) {
			if _, err := st.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveTime bounds how long an endpoint stays open for members that are about to read the reason of
// its end.
const leaveTime = 500 * time.Millisecond

// Leave closes the endpoint when no member is connected any more, or after half a second. Later
// connections are refused.
func (s *Endpoint) Leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	_ = s.hosted.Drain(ctx)
	return s.Close()
}

// Close ends the endpoint. Attempts that need it fail, and name this member.
func (s *Endpoint) Close() error {
	s.mu.Lock()
	s.closed = true
	clients := s.clients
	s.clients = map[store.Store]struct{}{}
	s.mu.Unlock()
	var errs []error
	for st := range clients {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, s.hosted.Close())...)
}

func (s *Endpoint) at(step string) {
	if s.opts.At != nil {
		s.opts.At(step)
	}
}
