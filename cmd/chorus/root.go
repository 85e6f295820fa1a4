package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

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
	strictly(root)
	explainUsage(root)
	return root
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
