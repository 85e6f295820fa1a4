package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/demo"
	"github.com/chorus-comms/chorus/comm"
)

func newDemoCmd() *cobra.Command {
	var f rankFlags
	var cfg demo.Config
	var asJSON bool
	var lose int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Train a network on handwritten digits with several ranks, and check the result",
		Long: `Train a small network on real handwritten digits with several ranks that average their gradients by all-reduce. Then
measure the bandwidth of all-reduce, and compare with the one-rank run on the same batches.

The command starts ranks of its own; under chorus run, torchrun or mpirun it uses theirs, and rank 0 prints. The exit status
is 0 if the network recognizes 95 % of the images that it has not seen, all ranks hold the same bits, and no
parameter is further than the tolerance from that of the one-rank run.

With --lose-rank that rank is killed in mid-training. The others make a new communicator of those who are left, share the batches among themselves, and go on
from the last step that any of them has taken; the result is held to the same standard.`,
		Example: `  chorus demo
  chorus demo --ranks 2 --fabric tcp --epochs 40
  chorus demo --lose-rank 0
  chorus run -n 4 chorus demo
  mpirun -n 4 chorus demo --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if o, ok := out.(*stdout); ok && o.live() {
				out = demo.NewLive(out)
			}
			if cfg.Epochs < 1 || cfg.Batch < 1 {
				return usagef("--epochs %d, --batch %d: want at least 1 of each", cfg.Epochs, cfg.Batch)
			}
			cfg.Fabric = f.fabric
			if lose >= 0 {
				rank, err := f.isRank(cmd)
				if err != nil {
					return err
				}
				if !rank {
					return losing(cmd.Context(), &f, lose, out)
				}
			}
			return f.run(cmd, out, nil, func(ctx context.Context, c *comm.Comm) error {
				cfg.Regroup = lose >= 0
				if c.Rank() == lose {
					cfg.OnStep = dieHalfway
				}
				return train(ctx, c, cfg, out, asJSON)
			})
		},
	}
	f.add(cmd, "n", 4, "auto")
	fs := cmd.Flags()
	fs.IntVar(&cfg.Epochs, "epochs", 60, "passes over the data")
	fs.IntVar(&cfg.Batch, "batch", 64, "images of a step, over all ranks")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "decides the first parameters and the order of the images")
	fs.IntVar(&lose, "lose-rank", -1,
		"rank that is killed in the middle of training; under a launcher that must tolerate it: chorus run --may-lose 1")
	fs.BoolVar(&asJSON, "json", false, "print only the result, as JSON")
	return cmd
}

// losing starts ranks of which one may be lost, and any may be the first in the end.
func losing(ctx context.Context, f *rankFlags, lose int, stdout io.Writer) error {
	if f.fabric == "mem" || f.ranks < 2 || lose >= f.ranks {
		return usagef("--lose-rank %d of %d over %s: it takes two ranks or more that are processes, and the rank must be among them", lose, f.ranks, f.fabric)
	}
	job, err := ownRanks(f.ranks, stdout)
	if err != nil {
		return err
	}
	job.MayLose, job.Console = 1, nil
	return job.Run(ctx)
}

// dieHalfway kills this process, as want of memory would, when half of the steps are taken.
func dieHalfway(step, steps int) {
	if step == steps/2 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// train runs on each rank; rank 0 reports, whichever that is in the end.
func train(ctx context.Context, c *comm.Comm, cfg demo.Config, stdout io.Writer, asJSON bool) error {
	if !asJSON {
		cfg.OnEpoch = func(rank int, e demo.Epoch) {
			if rank == 0 {
				fmt.Fprintln(stdout, e)
			}
		}
	}
	res, err := demo.Run(ctx, c, cfg)
	if err != nil || res.Rank != 0 {
		return err
	}
	if asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", " ")
		err = e.Encode(&res)
	} else {
		err = res.Write(stdout)
	}
	if err != nil {
		return err
	}
	return res.Err()
}
