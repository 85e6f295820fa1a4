package regroup

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/store"
)

// invitations is the queue in a newcomer's store.
const invitations = "invitations"

// Invited waits until a world has sent this newcomer the list of an attempt's members. The error may say why this
// process couldn't take a call.
func Invited(ctx context.Context, endpoint *Endpoint) (uuid string, members []Member, err error) {
	for {
		list, err := invitation(ctx, endpoint)
		if err != nil {
			return "", nil, err
		}
		var all roster
		if json.Unmarshal(list, &all) != nil {
			continue
		}
		if members, err := ParseAll(all.Handles); err == nil {
			return all.UUID, members, nil
		}
	}
}

// invitation is the next list.
func invitation(ctx context.Context, endpoint *Endpoint) ([]byte, error) {
	waiting, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case err := <-endpoint.Starved():
			stop(err)
		case <-waiting.Done():
		}
	})
	list, err := store.QueuePop(waiting, endpoint.Local(), invitations)
	starved := context.Cause(waiting)
	stop(nil)
	watch.Wait()
	if err != nil && sys.OutOfDescriptors(starved) {
		err = starved
	}
	return list, err
}
