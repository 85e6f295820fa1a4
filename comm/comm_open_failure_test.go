package comm_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/store"
)

// starved is a fabric that has memory for so many spaces; with less than none it can't be opened.
type starved struct {
	fabric.Sharer
	left *int
}

func (s starved) Space(ctx context.Context, id uint32, members []int, stageBytes int) (*fabric.Space, error) {
	if *s.left--; *s.left < 0 {
		return nil, syscall.ENOMEM
	}
	return s.Sharer.Space(ctx, id, members, stageBytes)
}

func init() {
	fabric.Register("starved", fabric.Driver{Open: func(ctx context.Context, c fabric.Config) (fabric.Fabric, error) {
		c.Options = maps.Clone(c.Options)
		var left int
		fmt.Sscan(c.Options["left"], &left)
		if d, err := time.ParseDuration(c.Options["late"]); err == nil {
			time.Sleep(d)
		}
		if left < 0 {
			return nil, syscall.ENOMEM
		}
		delete(c.Options, "left")
		delete(c.Options, "late")
		f, err := fabric.Open(ctx, "auto", c)
		if err != nil {
			return nil, err
		}
		return struct {
			fabric.Messenger
			fabric.Placer
			fabric.Sharer
		}{f.(fabric.Messenger), f.(fabric.Placer), starved{f.(fabric.Sharer), &left}}, nil
	}})
}

// TestCanNotOpen has one of four ranks fail to make its part of a communicator, of the world or of a split. It says
// why, and the others fail at once with that reason, even those that share no memory with it and had made their
// parts.
func TestCanNotOpen(t *testing.T) {
	const size, poor = 4, 1
	for _, part := range []string{"world", "split"} {
		t.Run(part, func(t *testing.T) {
			st := store.NewHash(time.Minute)
			defer st.Close()
			var wg sync.WaitGroup
			for r := range size {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					left := "9"
					if r == poor {
						left = map[string]string{"world": "0", "split": "1"}[part]
					}
					hints := map[string]string{"host_id": fmt.Sprint("host", r/2), "fabric.left": left}
					c, err := comm.New(ctx, comm.WithRank(r, size), comm.WithStore(st), comm.WithFabric("starved"),
						comm.WithHints(hints))
					if err == nil {
						defer c.Finalize(ctx)
						sub := c
						if part == "split" {
							sub, err = c.Split(ctx, []int{3, 2, 1, 0})
						}
						if err == nil {
							err = sub.Barrier(ctx)
						}
					}
					var aborted *comm.AbortedError
					switch {
					case r == poor:
						if !errors.Is(err, syscall.ENOMEM) {
							t.Errorf("rank %d: %v", r, err)
						}
					case !errors.As(err, &aborted) || !strings.Contains(aborted.Reason, syscall.ENOMEM.Error()):
						t.Errorf("rank %d: %v", r, err)
					case aborted.By != poor && (part == "world" || aborted.By != size-1-poor): // its rank in the split
						t.Errorf("rank %d: %v", r, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestAloneCanNotOpen: a world of one, which has no store to ask or tell, may take its time to open, and fail.
func TestAloneCanNotOpen(t *testing.T) {
	for left, want := range map[string]error{"0": nil, "-1": syscall.ENOMEM} {
		hints := map[string]string{"fabric.left": left, "fabric.late": "200ms"}
		c, err := comm.New(t.Context(), comm.WithRank(0, 1), comm.WithFabric("starved"), comm.WithHints(hints))
		if !errors.Is(err, want) {
			t.Errorf("left=%s: %v, want %v", left, err, want)
		}
		if err == nil {
			c.Finalize(t.Context())
		}
	}
}
