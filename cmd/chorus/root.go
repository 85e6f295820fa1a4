package main

import "github.com/spf13/cobra"

// commands makes every command of chorus. A new one is added here.
var commands = []func() *cobra.Command{
	newRunCmd,
	newGuardCmd,
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

func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "chorus",
		Short:         "Collective communication: start jobs, examine machines, measure",
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
		Args:          noSuchCommand,

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
	explainUsage(root)
	return root
}
