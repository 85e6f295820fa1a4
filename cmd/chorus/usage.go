package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// codeUsage is the exit status of a command line that can't be carried out, as shells and most programs have it.
const codeUsage = 2

// usageError says what is wrong with the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// usage marks an error as one of the command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// explainUsage makes what cobra finds wrong with the command line of cmd, or of those below it, a usageError.
func explainUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if typed := cmd.Flags().Args(); !cmd.HasParent() && len(typed) > 0 { // the flags are a command's that there isn't
			return usage(noSuchCommand(cmd, typed))
		}
		return usage(flagError(cmd.Flags(), err))
	})
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := cmd.ValidateFlagGroups(); err != nil {
				return usage(err)
			}
			return usage(check(cmd, args))
		}
	}
	for _, sub := range cmd.Commands() {
		explainUsage(sub)
	}
}

// flagError says of a value that can't be read what was wanted, rather than how it was read, and of a flag that there
// isn't which one is spelled alike.
func flagError(flags *pflag.FlagSet, err error) error {
	if none, ok := errors.AsType[*pflag.NotExistError](err); ok && none.GetSpecifiedShortnames() == "" {
		if near := nearest(flags, none.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; there is --%s", err, near)
		}
		return err
	}
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f := bad.GetFlag()
	name := "--" + f.Name
	var number *strconv.NumError
	switch {
	case f.Value.Type() == "bool":
		return fmt.Errorf("%s: want true or false, not %q", name, bad.GetValue())
	case errors.As(err, &number) && errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s: %s is out of range", name, bad.GetValue())
	case errors.As(err, &number):
		return fmt.Errorf("%s: want a number, not %q", name, bad.GetValue())
	case f.Value.Type() == "duration":
		return fmt.Errorf("%s: want a time such as 500ms or 10s, not %q", name, bad.GetValue())
	}
	return fmt.Errorf("%s: %w", name, bad.Unwrap())
}

// nearest returns the flag that a name may have been meant for, by cobra's rule for names of commands; or "".
func nearest(flags *pflag.FlagSet, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	if near := names.SuggestionsFor(name); len(name) > 2 && len(near) > 0 {
		return near[0]
	}
	return ""
}

// noSuchCommand is the rule for the arguments of chorus itself.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q", args[0])
}
