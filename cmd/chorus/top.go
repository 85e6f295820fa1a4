package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe"
)

func newTopCmd() *cobra.Command {
	var interval time.Duration
	var looks int
	var asJSON bool
	var web httpFlags
	var job string
	cmd := &cobra.Command{
		Use:   "top [JOB|DIR]",
		Short: "Show what the ranks of a running job do",
		Long: `Show, again and again, what the ranks of a job on this host do: each rank's communicators with their operations and bytes per second,
the operation that each is in, since when and where it was called, and which ranks the others wait for.

JOB is the name of a job of chorus run. Without it it's the job whose ranks are in CHORUS_DUMP_DIR, or the running job that was started
by this shell, or else in this terminal; where that leaves several, they are listed. Ranks of another launcher can be seen if CHORUS_DUMP_DIR names a directory
for them: DIR. Bytes are those of the ranks' tensors. Looking costs the ranks nothing while nobody looks.`,
		Example: `  chorus top
  chorus top --looks 1 --json train
  chorus top --http :9400 & curl localhost:9400/metrics
  go tool pprof http://localhost:9400/rank/2/pprof/profile?seconds=5`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeJobs(true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interval <= 0 {
				return usagef("top: --interval must be positive")
			}
			dir, err := findRecords(args, launch.FindRunning)
			if err != nil {
				return err
			}
			if web.address != "" {
				l, err := web.listen()
				if err != nil {
					return fmt.Errorf("top: %w", err)
				}
				return web.serve(cmd.Context(), l, func() string { return dir })
			}
			out := cmd.OutOrStdout()
			clear := looks != 1 && !asJSON && term.IsTerminal(int(os.Stdout.Fd()))
			var before []observe.Answer
			for look := 1; ; look++ {
				ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
				all, err := observe.AskLive(ctx, dir)
				cancel()
				if err != nil {
					return err
				}
				now, err := pickRunning(dir, job, all)
				if err != nil {
					return err
				}
				top := observe.NewTop(before, now)
				if top.Ranks+len(top.Silent) == 0 {
					if look > 1 {
						return nil // the job has ended
					}
					return fmt.Errorf("top: no rank records in %s: its job has ended, or has not begun", dir)
				}
				before = now
				switch {
				case asJSON:
					err = json.NewEncoder(out).Encode(top)
				case clear:
					_, err = fmt.Fprintf(out, "\x1b[H\x1b[2J%v", top)
				default:
					_, err = fmt.Fprintln(out, top)
				}
				if err != nil || look == looks {
					return err
				}
				select {
				case <-time.After(interval):
				case <-cmd.Context().Done():
					return nil
				}
			}
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&interval, "interval", time.Second, "time between two looks")
	fs.IntVar(&looks, "looks", 0, "how often to look; 0: until the job has ended")
	fs.StringVar(&job, "job", "", "which job, where a directory has ranks of several")
	web.add(fs, "serve it instead")
	fs.BoolVar(&asJSON, "json", false, "print a line of JSON at each look")
	return cmd
}
