// Command recover goes on when a rank dies: with the ranks that are left, or, if the launcher starts all of them again,
// from the last state that was saved.
//
//	chorus run -n 4 --may-lose 3 recover --die 2             # rank 2 dies; the others go on
//	chorus run -n 4 --max-restarts 1 recover --die 2         # all are started again, and go on from the file
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// state is what a run needs to go on.
type state struct {
	Step int64
	Sum  float64 // of all items so far, the same on every rank
}

// items are the numbers that each step adds up, divided among the ranks that there are.
const items = 64

func main() {
	log.SetFlags(0)
	steps := flag.Int64("steps", 200, "steps to take")
	each := flag.Duration("each", 0, "time that each step takes, as if there were more to compute")
	die := flag.Int("die", -1, "rank that dies halfway, in the first attempt")
	how := flag.String("how", "exit", "how it dies: exit, panic, or hook, a panic in a hook")
	file := flag.String("state", filepath.Join(os.TempDir(), "recover-"+os.Getenv("CHORUS_RUN")+".json"),
		"where the state is saved")
	flag.Parse()
	if err := run(context.Background(), *steps, *each, *die, *how, *file); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, steps int64, each time.Duration, die int, how, file string) error {
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	defer func() { c.Finalize(ctx) }() // whichever c is then
	s, err := load(file)
	if err != nil {
		return err
	}
	first, me := s.Step, c.Rank()
	for s.Step < steps {
		if me == die && first == 0 && s.Step == steps/2 {
			end(c, how)
		}
		time.Sleep(each)
		next, err := step(ctx, c, s)
		if err == nil {
			if s = next; c.Rank() == 0 && s.Step%10 == 0 {
				err = save(file, s)
			}
			if err != nil {
				return err
			}
			continue
		}
		// A rank that panics in a hook gives up first, and is gone then.
		gone := errors.Is(err, comm.ErrPeerLost) || errors.Is(err, comm.ErrAborted)
		if !gone || os.Getenv("TORCHELASTIC_MAX_RESTARTS") != "0" {
			return err // the launcher starts all again
		}
		// Survivors may be one step apart: all go on from the state of the rank that has come furthest.
		if c, err = c.Regroup(ctx); err != nil {
			return err
		}
		if s, err = latest(ctx, c, s); err != nil {
			return err
		}
		fmt.Printf("rank %d of %d goes on at step %d\n", c.Rank(), c.Size(), s.Step)
	}
	if c.Rank() == 0 {
		fmt.Printf("the sum is %v after %d steps, %d of them in this run\n", s.Sum, s.Step, s.Step-first)
		os.Remove(file)
	}
	return nil
}

// end ends this rank's program, in its next operation at the latest.
func end(c *comm.Comm, how string) {
	switch how {
	case "panic":
		panic("it dies")
	case "hook":
		c.RegisterPreHook(func(comm.OpInfo) error { panic("it dies in a hook") })
	default:
		os.Exit(1)
	}
}

// step returns the state after one more step.
func step(ctx context.Context, c *comm.Comm, s state) (state, error) {
	part := []float64{0}
	for i := items * c.Rank() / c.Size(); i < items*(c.Rank()+1)/c.Size(); i++ {
		part[0] += float64(i)
	}
	err := c.AllReduce(ctx, tensor.Of(part), comm.Sum)
	return state{s.Step + 1, s.Sum + part[0]}, err
}

// latest gives every rank the state of the one that has come furthest.
func latest(ctx context.Context, c *comm.Comm, s state) (state, error) {
	all := make([]float64, 2*c.Size())
	if err := c.AllGatherSingle(ctx, tensor.Of(all), tensor.Of([]float64{float64(s.Step), s.Sum})); err != nil {
		return s, err
	}
	for r := 0; r < len(all); r += 2 {
		if int64(all[r]) > s.Step {
			s = state{int64(all[r]), all[r+1]}
		}
	}
	return s, nil
}

// load reads the state that an attempt before this one has saved; without one it's the beginning.
func load(file string) (s state, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	return s, err
}

// save replaces the file as a whole, so that a rank that dies leaves a whole state, not half of one.
func save(file string, s state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
