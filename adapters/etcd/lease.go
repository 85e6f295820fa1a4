package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/chorus-comms/chorus/store"
)

// dialTime bounds the connection to one endpoint, and keepAlive says how soon a silent one is given up; etcd refuses to
// be asked more often than every 5 s. The client itself repeats a request once, with a new token of authentication if
// need be. Further repetitions are those of try, which keeps the reason.
const (
	dialTime  = 5 * time.Second
	keepAlive = 10 * time.Second
)

// Open opens a store at the endpoints of one cluster, each a HOST:PORT. It tries until its deadline, that of ctx or of
// the options, to reach one of them. The caller closes the store.
func Open(ctx context.Context, endpoints []string, opts Options) (*Store, error) {
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("%w: etcd: no endpoint", store.ErrOptions)
	}
	if err := opts.complete(); err != nil {
		return nil, fmt.Errorf("%w: etcd: %w", store.ErrOptions, err)
	}
	var id [8]byte
	rand.Read(id[:]) // never fails
	s := &Store{endpoints: strings.Join(endpoints, ","), prefix: opts.Prefix, data: opts.Prefix + "data/", opts: opts,
		id: hex.EncodeToString(id[:]), alive: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	c, done := s.call(ctx, "open")
	defer done()
	err := s.try(c, func(context.Context) (err error) {
		s.client, err = clientv3.New(clientv3.Config{Endpoints: slices.Clone(endpoints), TLS: opts.TLS,
			Username: opts.User, Password: opts.Password, DialTimeout: dialTime, DialKeepAliveTime: keepAlive,
			DialKeepAliveTimeout: dialTime, PermitWithoutStream: true, MaxUnaryRetries: 2,
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}, Logger: zap.NewNop()})
		return err
	})
	if err == nil {
		if err = s.join(c); err == nil {
			go s.renew()
			return s, nil
		}
		s.client.Close()
	}
	s.end(store.ErrClosed)
	return nil, err
}

// failFast has a request fail when no endpoint can be reached, with the reason, instead of waiting for one.
func failFast(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, c, append(opts[:len(opts):len(opts)], grpc.WaitForReady(false))...)
}

// join makes this process one of those that use the keys, with the lease of the others if there are any.
func (s *Store) join(c *call) error {
	leaseKey, mine := s.prefix+"lease", s.prefix+"clients/"+s.id
	granted := clientv3.NoLease
	defer func() {
		if granted != clientv3.NoLease && granted != s.lease { // another process was faster
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			s.client.Revoke(ctx, granted) // or else it expires
		}
	}()
	for attempt := 0; ; attempt++ {
		joined := false
		err := s.try(c, func(ctx context.Context) error {
			r, err := s.client.Get(ctx, leaseKey)
			if err != nil {
				return err
			}
			if len(r.Kvs) > 0 {
				lease, err := strconv.ParseInt(string(r.Kvs[0].Value), 16, 64)
				if err != nil {
					return fmt.Errorf("%q holds %.40q, which is no lease: another program uses the prefix", leaseKey,
						r.Kvs[0].Value)
				}
				t, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(leaseKey), "=", r.Kvs[0].ModRevision)).
					Then(clientv3.OpPut(mine, "", clientv3.WithLease(clientv3.LeaseID(lease)))).Commit()
				if errors.Is(err, rpctypes.ErrLeaseNotFound) {
					return nil // it expires just now
				}
				if err == nil && t.Succeeded {
					s.lease, joined = clientv3.LeaseID(lease), true
				}
				return err
			}
			if granted == clientv3.NoLease {
				g, err := s.client.Grant(ctx, int64((s.opts.TTL+time.Second-1)/time.Second))
				if err != nil {
					return err
				}
				granted = g.ID
			}
			t, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(leaseKey), "=", 0)).
				Then(clientv3.OpPut(leaseKey, strconv.FormatInt(int64(granted), 16), clientv3.WithLease(granted)),
					clientv3.OpPut(mine, "", clientv3.WithLease(granted))).Commit()
			if err == nil && t.Succeeded {
				s.lease, joined = granted, true
			}
			return err
		})
		if err != nil || joined {
			return err
		}
		if err := c.pause(attempt); err != nil {
			return err
		}
	}
}

// renew keeps the lease alive until the store is closed. The other processes do so, too.
func (s *Store) renew() {
	defer close(s.alive)
	wait := time.Duration(0)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(wait):
		}
		ctx, cancel := context.WithTimeout(s.ctx, attemptLimit)
		r, err := s.client.KeepAliveOnce(ctx, s.lease)
		cancel()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.expired()
			return
		case err != nil:
			wait = time.Second / 2
		default:
			wait = time.Duration(r.TTL) * time.Second / 3
		}
	}
}

// expired ends the store because its keys are gone, and returns the error of all calls from then on.
func (s *Store) expired() error {
	s.end(&store.ConnError{Op: "renewing the lease", Addr: "etcd at " + s.endpoints, Err: fmt.Errorf(
		"the keys below %s have expired: no process of the job has reached etcd for so long", s.prefix)})
	return context.Cause(s.ctx)
}

// leaveTime bounds how long Close tries to say that this process has gone.
const leaveTime = 3 * time.Second

// Close implements store.Store. The keys go with the last process that closes the store.
func (s *Store) Close() error {
	s.closed.Do(func() {
		s.end(store.ErrClosed)
		<-s.alive
		if errors.Is(context.Cause(s.ctx), store.ErrClosed) {
			s.leave() // otherwise there is nothing to leave
		}
		s.client.Close()
	})
	return nil
}

// leave removes what says that this process uses the keys, and the keys if no other process does. If etcd can't be
// reached, the lease removes both.
func (s *Store) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if _, err := s.client.Delete(ctx, s.prefix+"clients/"+s.id); err != nil {
		return
	}
	leaseKey := s.prefix + "lease"
	unused := clientv3.Compare(clientv3.CreateRevision(s.prefix+"clients/"), "=", 0).WithPrefix()
	same := clientv3.Compare(clientv3.Value(leaseKey), "=", strconv.FormatInt(int64(s.lease), 16))
	r, err := s.client.Txn(ctx).If(unused, same).Then(clientv3.OpDelete(leaseKey)).Commit()
	if err == nil && r.Succeeded {
		s.client.Revoke(ctx, s.lease)
	}
}
