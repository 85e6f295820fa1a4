package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands makes every command of chorus. A new one is added here.
var commands = []func() *cobra.Command{
	newRunCmd,
	newGuardCmd,
	newBenchCmd,
	newChaosCmd,
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

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "chorus",
		Short:         "Collective communication: start jobs, examine machines, measure",
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
		Args:          noSuchCommand,

		SuggestionsMinimumDistance: 2, // of what was typed
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetGlobalNormalizationFunc(hyphens)
	for _, newCmd := range commands {
		root.AddCommand(newCmd())
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	explainUsage(root)
	return root
}

// hyphens makes --nproc_per_node another spelling of --nproc-per-node, as torchrun has it, and --nproc a short one.
func hyphens(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "nproc" {
		name = "nproc-per-node"
	}
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}
