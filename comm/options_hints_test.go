package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// A hint's value is checked where the hint is given, and the error says which, what it was, and what it may be.
func TestHintsAreChecked(t *testing.T) {
	bad := []struct{ name, value, want string }{
		{"chunk_bytes", "abc", "want a number from 1"}, {"chunk_bytes", "-1", "want a number from 1"}, {"chunk_bytes",
			"99999999999999999999", "want a number from 1"},
		{"slots", "1000000000", "auto, on, off"}, {"mapped", "perhaps", "auto, on, off"}, {"stores", "",
			"auto, cached, bypass"},
		{"algorithm", "no-such", "ring"}, {"algorithm", "all_reduce=no-such", "ring"}, {"algorithm", "sum=ring",
			"unknown collective"},
		{"stage_bytes", "abc", "want a number from 1"}, {"stage_bytes", "-1", "want a number from 1"}, {"speed", "high",
			"chunk_bytes"},
	}
	comms := over("mem")(t, 2)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		for _, x := range bad {
			hints := map[string]string{x.name: x.value}
			ways := map[string]func() error{
				"new": func() error { _, err := comm.New(ctx, comm.WithRank(0, 1), comm.WithHints(hints)); return err },
				"set": func() error { return c.SetHints(hints) },
				"operation": func() error {
					return c.AllReduce(ctx, zeros(4), comm.Sum, comm.Hint(x.name, x.value))
				},
				"split": func() error { _, err := c.Split(ctx, []int{0, 1}, comm.SplitHints(hints)); return err },
			}
			for _, way := range []string{"new", "set", "operation", "split"} {
				own := x.name == "stage_bytes" || x.name == "speed"
				if own && (way == "set" || way == "operation") {
					continue // which don't take it, whatever its value
				}
				err := ways[way]()
				if !errors.Is(err, comm.ErrInvalidArgument) {
					return fmt.Errorf("%s with %s=%s: %v", way, x.name, x.value, err)
				}
				for _, part := range []string{x.name, x.value, x.want} {
					if way != "operation" && x.name != "speed" && !strings.Contains(err.Error(), part) {
						return fmt.Errorf("%s with %s=%s does not say %q: %v", way, x.name, x.value, part, err)
					}
				}
			}
		}
		if err := c.SetHints(map[string]string{"algorithm": "all_reduce=ring,broadcast=no-such?", "chunk_bytes": "4096",
			"slots": "off"}); err != nil {
			return err
		}
		return errors.Join(c.AllReduce(ctx, zeros(4), comm.Sum), c.Finalize(ctx))
	})
}

// An error about an algorithm's name tells the names once, also where memory is mapped, which other algorithms serve.
func TestAlgorithmsNamesOnce(t *testing.T) {
	each(t, over("shm")(t, 2), func(ctx context.Context, c *comm.Comm) error {
		for hint, want := range map[string]string{
			"rabenseifner": `no algorithm is called "rabenseifner"; there are binomial`, // which all-reduce has
			"two_level":    "broadcast two_level: ",
		} {
			err := c.Broadcast(ctx, zeros(4), 0, comm.Algorithm(hint))
			if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), want) ||
				strings.Count(err.Error(), "plan: ") != 1 {
				return fmt.Errorf("%s: %v", hint, err)
			}
		}
		return errors.Join(c.Barrier(ctx), c.Finalize(ctx))
	})
}

// Windows of different dtypes: all ranks name the same two, one of each side.
func TestWindowsOfDifferentTypes(t *testing.T) {
	comms := over("mem")(t, 4)
	each(t, comms, func(ctx context.Context, c *comm.Comm) error {
		x := []*tensor.Tensor{nil, zeros(4), zeros(4), tensor.Must(tensor.Zeros(dtype.Int32, 4))}[c.Rank()]
		_, err := c.NewWindow(ctx, x)
		var mm *comm.MismatchError
		if !errors.As(err, &mm) || mm.RankA != 1 || mm.RankB != 3 || mm.OpA != "window of float32" ||
			mm.OpB != "window of int32" {
			return fmt.Errorf("got %v", err)
		}
		return errors.Join(c.Barrier(ctx), c.Finalize(ctx))
	})
}

// TestFabricOfTheEnvironment demands that an error about a fabric says that a variable has named it.
func TestFabricOfTheEnvironment(t *testing.T) {
	t.Setenv("CHORUS_FABRIC", "nonesuch")
	_, err := comm.New(context.Background(), comm.WithRank(0, 1))
	if !errors.Is(err, comm.ErrInvalidArgument) || !strings.Contains(err.Error(), `"nonesuch" (CHORUS_FABRIC)`) {
		t.Error(err)
	}
}
