package store_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/store"
)

// TestLastAttemptCutShort has the time end in the middle of an attempt: the error tells why the one before failed.
func TestLastAttemptCutShort(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	attempts := 0
	_, err := store.DialTCP(ctx, "host:1", store.TCPOptions{Dial: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		if attempts++; attempts == 1 {
			return nil, errors.New("what is wrong")
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if e := (*store.DialError)(nil); !errors.As(err, &e) || e.Attempts != 2 || !strings.Contains(err.Error(),
		"what is wrong") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
