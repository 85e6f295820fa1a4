package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/observe"
	"github.com/chorus-comms/chorus/observe/endpoint"
)

// askLimit bounds how long ranks that run are waited for; those that are stopped don't answer.
const askLimit = 2 * time.Second

func newExplainCmd() *cobra.Command {
	var asJSON bool
	var last int
	var trace, torch, html, job string
	cmd := &cobra.Command{
		Use:   "explain [JOB|DIR]",
		Short: "Say from the dumps of a job which rank is to blame for a hang or a failure",
		Long: `Read the flight records that the ranks of a job have dumped into a directory, and say which rank is to blame, what it
does and where, and what the others wait for.

JOB is the name of a job of chorus run on this host, while it runs or after it has failed; the ranks of one that runs are asked for their
dumps now. Without it it's the job whose records are in CHORUS_DUMP_DIR, or that was started by this shell, or else in this terminal;
where that leaves several, they are listed. DIR is a directory with dumps; of several jobs there, or several lives of one, the last is
explained. Ranks dump if CHORUS_DUMP_DIR names a directory, which chorus run sees to: at the first
failure, and at SIGUSR1 (kill -USR1 PID), whatever they are doing. A program can ask for it, too: record.DumpAll.

The exit status is 0 if there is nobody to blame, and 1 if there is.`,
		Example: `  chorus run -n 4 --rdzv-id train ./train
  chorus explain
  chorus explain train
  chorus explain dumps
  chorus explain --trace trace.json dumps   # for chrome://tracing or ui.perfetto.dev
  chorus explain --torch out dumps && torchfrtrace out`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeJobs(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if trace != "" || torch != "" {
				last = 0
			}
			dir, err := findRecords(args, launch.FindRecords)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if job := launch.Ended(launch.JobsDir(), dir); job != "" {
					cmd.PrintErrf("chorus: of job %s, which has ended\n", job)
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
			defer cancel()
			answers, err := observe.AskDumps(ctx, dir)
			if err != nil {
				return err
			}
			lives, err := observe.ReadLives(dir, last)
			switch {
			case lives == nil:
				return err
			case err != nil:
				cmd.PrintErrln("chorus:", err) // the ranks that are left may tell enough
			}
			dumps, err := pickLife(dir, job, lives, answers)
			if err != nil {
				return err
			}
			for i := range lives {
				if &lives[i][0] != &dumps[0] {
					cmd.PrintErrf("chorus: %v is not looked at: it's another job, or from before\n", lives[i])
				}
			}
			if torch != "" {
				return observe.WriteTorch(torch, dumps)
			}
			if trace != "" {
				f, err := os.Create(trace)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := observe.WriteTrace(f, dumps); err != nil {
					return err
				}
				return f.Close()
			}
			silent := dumps.Silent(answers)
			if html != "" {
				f, err := os.Create(html)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := endpoint.WritePage(f, dumps, silent); err != nil {
					return err
				}
				return f.Close()
			}
			report := observe.Explain(dumps, silent...)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(report)
			} else {
				_, err = cmd.OutOrStdout().Write([]byte(report.String()))
			}
			if err == nil && len(report.Findings) > 0 {
				err = errReported
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&asJSON, "json", false, "print JSON")
	fs.IntVar(&last, "last", 256, "how many of each rank's last operations to look at; 0: all")
	fs.StringVar(&job, "job", "", "which job, where a directory has dumps of several")
	fs.StringVar(&trace, "trace", "", "write what the ranks did to this file, in Chrome's trace format, instead")
	fs.StringVar(&html, "html", "", "write it as a page to this file, which needs no server, instead")
	fs.StringVar(&torch, "torch", "", "write the dumps to this directory, for PyTorch's torchfrtrace, instead")
	cmd.MarkFlagsMutuallyExclusive("json", "trace", "torch", "html")
	return cmd
}
