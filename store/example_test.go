package store_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// One process serves the store; others, of PyTorch as well, set keys and wait for keys.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	told := make(chan string)
	go func() {
		st, err := store.DialTCP(ctx, srv.Addr().String(), store.TCPOptions{})
		if err != nil {
			told <- err.Error()
			return
		}
		defer st.Close()
		address, err := st.Get(ctx, "address/0") // waits until it's there
		told <- fmt.Sprint(string(address), " ", err)
	}()
	st, err := store.DialTCP(ctx, srv.Addr().String(), store.TCPOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Close()
	if err := st.Set(ctx, "address/0", []byte("10.0.0.3:4711")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-told)
	// Output: 10.0.0.3:4711 <nil>
}

// A prefix keeps the keys of several users of one store apart. A wait that times out names the missing
// keys.
func ExampleNewPrefix() {
	ctx := context.Background()
	base := store.NewHash(50 * time.Millisecond)
	defer base.Close()
	a, b := store.NewPrefix("a", base), store.NewPrefix("b", base)
	n, err := a.Add(ctx, "ranks", 1)
	fmt.Println(n, err)
	_, err = b.Get(ctx, "ranks")
	late := (*store.TimeoutError)(nil)
	fmt.Println(errors.As(err, &late))
	// Output:
	// 1 <nil>
	// true
}
