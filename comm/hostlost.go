package comm

import (
	"context"
	"errors"
	"time"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// lookTime bounds how long a rank looks whether the store is still there.
const lookTime = 500 * time.Millisecond

// storeHostLost is the error of New on a rank that has lost the store, if it's known whose process served that. When
// that host dies other ranks give up, too, so a rank that seems lost is a reason to check the store. The error of New
// is given, and st is nil if New has not used a store yet.
func (o *newOptions) storeHostLost(st store.Store, err error) error {
	if !o.hosted || st == nil || o.host == o.rank || fabric.Exhausted(err) {
		return nil
	}
	gone := err
	if absent := (*fabric.AbsentError)(nil); errors.Is(err, ErrPeerLost) || errors.Is(err, ErrAborted) || errors.As(err,
		&absent) {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		_, gone = st.Check(ctx, "joined")
	}
	if !store.Gone(gone) {
		return nil
	}
	return &PeerLostError{Where: Where{Comm: o.name, Op: "new", Reporter: o.rank}, Peer: o.host,
		Cause: "its process served the store where the ranks meet: " + gone.Error()}
}
