package main

import (
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

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
	cmd.AddCommand(newEmulateCmd())
	return cmd
}

func newEmulateCmd() *cobra.Command {
	var c wire.Config
	protocol, level := "udp", 3
	cmd := &cobra.Command{
		Use:   "emulate -s WORLD -r RANK",
		Short: "One rank's engine behind sockets, in place of ACCL's emulator",
		Long: `One rank's engine behind sockets, with the command line of ACCL's emulator: its driver, and other emulators,
may be on the other side. It serves until it's interrupted.`,
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
