package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/bootstrap"
	"github.com/chorus-comms/chorus/store"
)

// Which rank is this, and of how many? Detect looks into the environment; a program without a launcher may be a world
// of one.
func ExampleDetect() {
	env := map[string]string{"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"} // torchrun's
	// A program passes os.Getenv.
	info, err := bootstrap.Detect(func(name string) string { return env[name] })
	if errors.Is(err, bootstrap.ErrNoLauncher) {
		info, err = bootstrap.Info{Size: 1}, nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // names the variable and its value
		return
	}
	fmt.Println(info.Rank, info.Size, info.Launcher, info.MasterAddr)
	// Output: 1 4 torchrun node0
}

// Each rank learns of all others where they are.
func ExampleExchange() {
	st := store.NewHash(time.Minute) // of Open, where the ranks are processes
	defer st.Close()
	var all sync.WaitGroup
	for rank := range 3 {
		all.Go(func() {
			addresses, err := bootstrap.Exchange(context.Background(), st, rank, 3, fmt.Appendf(nil, "10.0.0.%d:4711", rank))
			if rank == 1 || err != nil {
				fmt.Printf("%s %v\n", addresses, err)
			}
		})
	}
	all.Wait()
	// Output: [10.0.0.0:4711 10.0.0.1:4711 10.0.0.2:4711] <nil>
}
