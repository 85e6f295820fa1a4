package regroup_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/chorus-comms/chorus/comm/regroup"
	"github.com/chorus-comms/chorus/store"
)

// Three processes, goroutines here, agree on a world of themselves. Each has a handle that the others got by some
// means.
func ExampleEndpoint_Agree() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var endpoints []*regroup.Endpoint
	var handles []string
	for rank := range 3 {
		endpoint, err := regroup.Open(regroup.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer endpoint.Close()
		endpoints = append(endpoints, endpoint)
		handles = append(handles, endpoint.Member(regroup.OldPlace{World: "train", Rank: rank, Size: 3}).String())
	}
	members, err := regroup.ParseAll(handles)
	if err != nil {
		fmt.Println(err)
		return
	}
	var all sync.WaitGroup
	for rank, endpoint := range endpoints {
		all.Go(func() {
			err := endpoint.Agree(ctx, "attempt-1", members, func(ctx context.Context, st store.Store) error {
				_, err := st.Add(ctx, "ready", 1) // what the world needs, through a store that all share
				return err
			})
			if rank == 0 || err != nil {
				fmt.Println(len(members), "members, agreed:", err == nil)
			}
		})
	}
	all.Wait()
	// Output: 3 members, agreed: true
}
