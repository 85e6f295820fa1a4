package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/accl"
	"github.com/chorus-comms/chorus/accl/abi"
	"github.com/chorus-comms/chorus/accl/wire"
)

func newAcclCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accl",
		Short: "Offload engines of ACCL",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEmulateCmd(), newMovesCmd())
	return cmd
}

func newEmulateCmd() *cobra.Command {
	var c wire.Config
	protocol, level := "udp", 3
	cmd := &cobra.Command{
		Use:   "emulate -s WORLD -r RANK",
		Short: "One rank's engine behind sockets, in place of ACCL's emulator",
		Long: `One rank's engine behind sockets, with the command line of ACCL's emulator: its driver, and other emulators,
may be on the other side. It serves until it's interrupted. Its sockets are on the loopback, for processes of the same user; CHORUS_INSECURE=true
admits those of others.`,
		Example: "  for r in 0 1; do chorus accl emulate -s 2 -r $r -c cyt_rdma -b & done",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.Protocol, err = abi.ParseProtocol(protocol); err != nil {
				return usagef("%v", err)
			}
			if c.World < 1 || c.Rank < 0 || c.Rank >= c.World {
				return usagef("there is no rank %d of %d", c.Rank, c.World)
			}
			c.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: logLevel(level)}))
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			e, err := wire.Listen(ctx, c)
			if err != nil {
				if ctx.Err() != nil {
					return nil // before the others came
				}
				return fmt.Errorf("rank %d: %w", c.Rank, err)
			}
			c.Log.Info("the engine serves", "rank", c.Rank, "world", c.World, "protocol", c.Protocol)
			err = e.Serve(ctx)
			e.Close()
			return err
		},
	}
	f := cmd.Flags()
	f.IntVarP(&c.World, "comm_size", "s", 1, "how many engines there are")
	f.IntVarP(&c.Rank, "rank", "r", 0, "which of them this is")
	f.IntVarP(&c.StartPort, "port", "p", wire.DefaultPort, "where the ports of all begin, four for each")
	f.StringVarP(&protocol, "comm_type", "c", protocol, "protocol between the engines: udp, tcp or cyt_rdma")
	f.BoolVarP(&c.Loopback, "loopback", "b", false, "what goes to the kernel comes back from it")
	f.IntVarP(&level, "loglevel", "l", level, "0 error, 1 critical, 2 warning, 3 info, 4 verbose, 5 debug")
	return cmd
}

func newMovesCmd() *cobra.Command {
	var ranks, count, eager int
	var op, protocol, compress, out string
	cmd := &cobra.Command{
		Use:   "moves --op COLLECTIVE",
		Short: "The instructions of engines' data movers for a collective",
		Long: `Engines of this process carry a collective of float32 out, from or to rank 0, and the instructions that their data
movers got are listed with their words, or drawn.`,
		Example: "  chorus accl moves --op allreduce --ranks 4 --out moves.svg",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := abi.ParseProtocol(protocol)
			if err != nil {
				return usagef("%v", err)
			}
			all := accl.Collectives()
			op = operationName(op, all)
			i := slices.IndexFunc(all, func(s abi.Scenario) bool { return s.String() == op })
			if i < 0 {
				return usagef("--op %q is none of %v", op, all)
			}
			const most = 16
			if ranks < 1 || ranks > most || count < 1 || count > 1<<20 || eager < 0 || eager > 1<<29 {
				return usagef("--ranks is 1 to %d, --count 1 to 2^20, --eager 1 to 2^29", most)
			}
			var opts []accl.Option
			if compress == abi.Float16.String() {
				opts = append(opts, accl.Compress(abi.Float16))
			} else if compress != abi.None.String() {
				return usagef("--compress is float16 or none")
			}
			c := accl.Config{RXBufferSize: min(eager, 1024), MaxEagerSize: eager, MaxRendezvousSize: max(2*eager, 1<<20)}
			m, err := accl.RecordMoves(cmd.Context(), all[i], ranks, count, p, c, opts...)
			if err != nil {
				return err
			}
			if out == "" {
				return m.WriteText(cmd.OutOrStdout())
			}
			f, err := os.Create(out)
			if err != nil {
				return err
			}
			return errors.Join(m.WriteSVG(f), f.Close())
		},
	}
	f := cmd.Flags()
	f.StringVar(&op, "op", "allreduce", "the collective: allreduce, all-reduce and all_reduce are one")
	f.IntVarP(&ranks, "ranks", "n", 4, "how many engines")
	f.IntVar(&count, "count", 16, "elements: of each block, where there are several")
	f.IntVar(&eager, "eager", 1024, "bytes up to which messages are eager, with cyt_rdma")
	f.StringVar(&protocol, "protocol", "cyt_rdma", "udp, tcp or cyt_rdma")
	f.StringVar(&compress, "compress", "none", "float16: what goes over the wire is that")
	f.StringVar(&out, "out", "", "file for a drawing, SVG; without it the moves are listed")
	return cmd
}

// logLevel translates the emulator's levels.
func logLevel(n int) slog.Level {
	switch {
	case n <= 1:
		return slog.LevelError
	case n == 2:
		return slog.LevelWarn
	case n == 3:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
