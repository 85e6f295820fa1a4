package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/chorus-comms/chorus/secure"
)

func newSecretCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "secret",
		Short: "Print a fresh secret for a job",
		Long: `Print a fresh, random secret, by which the processes of a job know each other.

A job on one host needs none: chorus run makes one. For several hosts write one to a file that only you can read, copy the file to
every host, and name it in CHORUS_SECRET_FILE there.`,
		Example: `  (umask 077; chorus secret > job.secret)
  CHORUS_SECRET_FILE=job.secret chorus run --nnodes 2 --rdzv-endpoint node0:29400 -n 8 ./train     # the same on both nodes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), secure.Generate())
			return err
		},
	}
}
