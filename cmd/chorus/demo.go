package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/demo"
)

func newDemoCmd() *cobra.Command {
	var f rankFlags
	var cfg demo.Config
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Train a network on handwritten digits with several ranks, and check the result",
		Long: `Train a small network on real handwritten digits with several ranks that average their gradients by all-reduce. Then
measure the bandwidth of all-reduce, and compare with the one-rank run on the same batches.

The command starts ranks of its own; under chorus run, torchrun or mpirun it uses theirs, and rank 0 prints. The exit status
is 0 if the network recognizes 95 % of the images that it has not seen, all ranks hold the same bits, and no
parameter is further than the tolerance from that of the one-rank run.`,
		Example: `  chorus demo
  chorus demo --ranks 2 --fabric tcp --epochs 40
  chorus run -n 4 chorus demo
  mpirun -n 4 chorus demo --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stdout := cmd.OutOrStdout()
			if file, ok := stdout.(*os.File); ok && term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb" {
				stdout = demo.NewLive(stdout)
			}
			cfg.Fabric = f.fabric
			return f.run(cmd, stdout, nil, func(ctx context.Context, c *comm.Comm) error {
				return train(ctx, c, cfg, stdout, asJSON)
			})
		},
	}
	f.add(cmd, 4, "auto")
	fs := cmd.Flags()
	fs.IntVar(&cfg.Epochs, "epochs", 60, "passes over the data")
	fs.IntVar(&cfg.Batch, "batch", 64, "images of a step, over all ranks")
	fs.Uint64Var(&cfg.Seed, "seed", 1, "decides the first parameters and the order of the images")
	fs.BoolVar(&asJSON, "json", false, "print only the result, as JSON")
	return cmd
}

// train runs on each rank; rank 0 reports.
func train(ctx context.Context, c *comm.Comm, cfg demo.Config, stdout io.Writer, asJSON bool) error {
	if c.Rank() != 0 {
		_, err := demo.Run(ctx, c, cfg)
		return err
	}
	if !asJSON {
		cfg.OnEpoch = func(_ int, e demo.Epoch) { fmt.Fprintln(stdout, e) }
	}
	res, err := demo.Run(ctx, c, cfg)
	if err != nil {
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
