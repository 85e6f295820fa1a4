package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/cmd/internal/bench"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/launch"
)

// commands makes every command of chorus. A new one is added here.
var commands = []func() *cobra.Command{
	newRunCmd,
	newGuardCmd,
	newNodeCmd,
	newBenchCmd,
	newChaosCmd,
	newAcclCmd,
	newDemoCmd,
	newPlanCmd,
	newExplainCmd,
	newTopCmd,
	newMemvizCmd,
	newDoctorCmd,
	newSecretCmd,
	newProbeCopyCmd,
	newVersionCmd,
	newManCmd,
}

// groups are what the commands are for, in the order of the help.
var groups = []struct {
	title    string
	commands []string
}{
	{"Start jobs:", []string{"run", "secret", "demo"}},
	{"See what they do, and why they failed:", []string{"top", "explain", "doctor", "memviz"}},
	{"Measure and test:", []string{"bench", "plan", "chaos", "accl"}},
	{"About the command:", []string{"help", "version", "completion", "man"}},
}

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "chorus",
		Short:         "Collective communication: start jobs, examine machines, measure",
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
		Args:          noSuchCommand,

		Example: `  chorus run -n 4 train.py
  chorus explain
  chorus bench all_reduce -n 2`,

		SuggestionsMinimumDistance: 2, // of what was typed
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:                    readVersion().String(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetGlobalNormalizationFunc(flagName)
	for _, newCmd := range commands {
		root.AddCommand(newCmd())
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	grouped(root)
	strictly(root)
	explainUsage(root)
	completeValues(root)
	return root
}

// grouped puts the commands of root into their groups.
func grouped(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.commands, cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
	}
}

// completeValues has shells complete the values of flags that have only a few, in all commands below cmd.
func completeValues(cmd *cobra.Command) {
	few := map[string][]string{"fabric": {"auto", "shm", "tcp", "mem"}, "memory": {string(bench.Mapped), string(bench.Ordinary)},
		"dtype": dtypeNames(), "protocol": {"udp", "tcp", "cyt_rdma"}, "compress": {"none", "float16"}}
	for name, values := range few {
		if cmd.Flags().Lookup(name) != nil {
			complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // fails for a flag that has one
		}
	}
	for _, sub := range cmd.Commands() {
		completeValues(sub)
	}
}

// completeJobs has shells complete the names of jobs on this host, and directories.
func completeJobs(running bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return launch.JobNames(launch.JobsDir(), running), cobra.ShellCompDirectiveDefault
	}
}

func dtypeNames() (names []string) {
	for _, dt := range dtype.All() {
		names = append(names, dt.String())
	}
	return names
}

// strictly makes cobra's own commands, which show what there is, refuse the name of something that there isn't.
func strictly(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				_, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = fmt.Errorf("unknown command %q", rest[0])
				}
				return err
			}
		}
	}
}
