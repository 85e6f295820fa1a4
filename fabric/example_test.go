package fabric_test

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/fabric"
	_ "github.com/chorus-comms/chorus/fabric/hybrid" // registers "auto"
	_ "github.com/chorus-comms/chorus/fabric/shm"
	_ "github.com/chorus-comms/chorus/fabric/tcp"
	"github.com/chorus-comms/chorus/store"
)

// A fabric by name: shared memory, TCP, or for each pair what it can have. The ranks exchange their addresses through a
// store. They are goroutines here; processes do the same.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"tcp", "shm", "auto"} {
		st := store.NewHash(time.Minute)
		var all sync.WaitGroup
		for rank := range 2 {
			all.Go(func() {
				if err := greet(ctx, name, rank, st); err != nil {
					fmt.Println(err)
				}
			})
		}
		all.Wait()
		st.Close()
	}
	// Output:
	// hello from rank 0 by tcp
	// hello from rank 0 by shm
	// hello from rank 0 by auto
}

// greet is rank 0, which sends, or rank 1, which receives.
func greet(ctx context.Context, name string, rank int, st store.Store) error {
	exchanges := 0
	f, err := fabric.Open(ctx, name, fabric.Config{
		Rank: rank, Size: 2, HostID: "this one",
		Exchange: func(ctx context.Context, payload []byte) ([][]byte, error) {
			exchanges++
			return bootstrap.Exchange(ctx, store.NewPrefix(fmt.Sprint(exchanges), st), rank, 2, payload)
		},
	})
	if err != nil {
		return err
	}
	defer f.Close(ctx)
	buf := make([]byte, 5)
	m := &fabric.Msg{Peer: 1 - rank, Key: fabric.Key{Class: fabric.PointToPoint, Tag: 42}, Buf: unsafe.Pointer(&buf[0]),
		Len: len(buf)}
	w := fabric.NewWaiter(fabric.NewAbort()) // which says until when a wait goes on
	w.Begin(ctx, time.Minute)
	m.Reset(w)
	if rank == 0 {
		copy(buf, "hello")
		f.Send(m)
		return f.Wait(m, w)
	}
	f.Recv(m)
	if err := f.Wait(m, w); err != nil {
		return err
	}
	fmt.Printf("%s from rank %d by %s\n", buf[:m.N], m.From, name)
	return nil
}
