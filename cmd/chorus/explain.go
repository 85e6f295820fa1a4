package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
	var o explainOptions
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
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.asJSON, "json", false, "print JSON")
	fs.IntVar(&o.last, "last", 256, "how many of each rank's last operations to look at; 0: all")
	fs.StringVar(&o.job, "job", "", "which job, where a directory has dumps of several")
	fs.StringVar(&o.trace, "trace", "", "write what the ranks did to this file, in Chrome's trace format, instead")
	fs.StringVar(&o.html, "html", "", "write it as a page to this file, which needs no server, instead")
	fs.StringVar(&o.torch, "torch", "", "write the dumps to this directory, for PyTorch's torchfrtrace, instead")
	cmd.MarkFlagsMutuallyExclusive("json", "trace", "torch", "html")
	return cmd
}

// explainOptions are the flags of chorus explain.
type explainOptions struct {
	asJSON                  bool
	last                    int
	trace, torch, html, job string
}

// run explains the dumps that the arguments name.
func (o *explainOptions) run(cmd *cobra.Command, args []string) error {
	dumps, answers, err := o.read(cmd, args)
	switch {
	case err != nil || dumps == nil:
		return err
	case o.torch != "":
		return observe.WriteTorch(o.torch, dumps)
	case o.trace != "":
		return writeFile(o.trace, func(w io.Writer) error { return observe.WriteTrace(w, dumps) })
	case o.html != "":
		return writeFile(o.html, func(w io.Writer) error { return endpoint.WritePage(w, dumps, dumps.Silent(answers)) })
	}
	report := observe.Explain(dumps, dumps.Silent(answers)...)
	if o.asJSON {
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
}

// read returns the dumps of one life of a job, and the answers of its ranks that still run. There may be no dumps.
func (o *explainOptions) read(cmd *cobra.Command, args []string) (dumps observe.Life, answers []observe.Answer, err error) {
	last := o.last
	if o.trace != "" || o.torch != "" {
		last = 0
	}
	dir, err := findRecords(args, launch.FindRecords)
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		if job := launch.Ended(launch.JobsDir(), dir); job != "" {
			cmd.PrintErrf("chorus: of job %s, which has ended\n", job)
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askLimit)
	defer cancel()
	if answers, err = observe.AskDumps(ctx, dir); err != nil {
		return nil, nil, err
	}
	lives, err := observe.ReadLives(dir, last)
	switch {
	case lives == nil:
		return nil, nil, err
	case err != nil:
		cmd.PrintErrln("chorus:", err) // the ranks that are left may tell enough
	}
	if dumps, err = pickLife(dir, o.job, lives, answers); err != nil {
		return nil, nil, err
	}
	for i := range lives {
		if &lives[i][0] != &dumps[0] {
			cmd.PrintErrf("chorus: %v is not looked at: it's another job, or from before\n", lives[i])
		}
	}
	return dumps, answers, nil
}

// writeFile makes a file of what write writes.
func writeFile(name string, write func(w io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
