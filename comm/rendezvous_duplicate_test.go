package comm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/store"
)

// Two that come as the same rank: both, and who waits for the one that doesn't come, are told at once, on every fabric
// and by every store.
func TestDuplicateRank(t *testing.T) {
	server, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	file := filepath.Join(t.TempDir(), "store")
	stores := map[string]func(ctx context.Context) (store.Store, error){
		"tcp": func(ctx context.Context) (store.Store, error) {
			return store.DialTCP(ctx, server.Addr().String(), store.TCPOptions{})
		},
		"file": func(ctx context.Context) (store.Store, error) { return store.OpenFile(ctx, file, store.FileOptions{}) },
	}
	for name, open := range stores {
		for _, fabric := range []string{"mem", "shm", "tcp", "auto"} {
			for _, twice := range []int{0, 2} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, fabric, twice), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					start := time.Now()
					var wg sync.WaitGroup
					for _, rank := range []int{twice, 1, twice} {
						wg.Go(func() {
							st, err := open(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							defer st.Close()
							_, err = comm.New(ctx, comm.WithRank(rank, 3), comm.WithStore(st),
								comm.WithName(t.Name()[strings.LastIndex(t.Name(), "/")+1:]+fabric), comm.WithFabric(fabric))
							var e *bootstrap.DuplicateRankError
							if !errors.Is(err, comm.ErrInvalidArgument) || !errors.As(err, &e) || e.Rank != twice || e.Size != 3 {
								t.Errorf("rank %d: %v", rank, err)
								return
							}
							pid := fmt.Sprintf("pid %d on ", os.Getpid())
							if !strings.HasPrefix(e.First, pid) || !strings.HasPrefix(e.Second, pid) {
								t.Errorf("rank %d: %v", rank, err)
							}
						})
					}
					wg.Wait()
					if took := time.Since(start); took > 20*time.Second {
						t.Errorf("it took %v", took)
					}
				})
			}
		}
	}
}
