package rendezvous

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/launch/internal/process"
	"github.com/chorus-comms/chorus/store"
)

// TestSilenceIsNoEnd has a rank fail when the heartbeats have already found that the serving launcher doesn't answer:
// its failure is the first, unless that launcher has ended.
func TestSilenceIsNoEnd(t *testing.T) {
	for _, c := range []struct {
		found error
		want  process.Kind
	}{{os.ErrDeadlineExceeded, process.Exited}, {syscall.ECONNREFUSED, process.NodeLost}} {
		rv := &rendezvous{job: &Config{LostAfter: time.Second, Monitor: time.Millisecond}, endpoint: "e"}
		h := store.NewHash(time.Second)
		defer h.Close()
		rv.store = store.NewPrefix("p", ended{h})
		v := rv.newLiveness(1, func(*process.Failure) {})
		v.noAnswer(c.found)
		if f := rv.Failed(&process.Failure{Kind: process.Exited, Rank: 1}); f.Kind != c.want {
			t.Errorf("after %v the first failure is %v", c.found, f.Kind)
		}
	}
}

// ended is a store that is asked when the context has ended, as one behind a link is.
type ended struct{ *store.HashStore }

func (ended) CompareSet(ctx context.Context, _ string, _, _ []byte) ([]byte, error) {
	return nil, ctx.Err()
}
