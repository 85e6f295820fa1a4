package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherNames are names of flags that people know from torchrun and nccl-tests, and what they are called here.
var otherNames = map[string]string{
	"nproc":        "nproc-per-node",
	"minbytes":     "min",
	"maxbytes":     "max",
	"stepfactor":   "step",
	"stepbytes":    "step-bytes",
	"datatype":     "dtype",
	"warmup-iters": "warmup",
}

// operationName returns the one of the known operations that was typed in any spelling, such as allreduce, all-reduce
// or All_Reduce; what was typed if it's none of them.
func operationName[S any](typed string, known []S) string {
	plain := func(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s)) }
	for _, k := range known {
		if name := fmt.Sprint(k); plain(name) == plain(typed) {
			return name
		}
	}
	return typed
}

// flagName is the name that a flag has here: --nproc_per_node is another spelling of --nproc-per-node, and --minbytes
// another name of --min.
func flagName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if ours, ok := otherNames[name]; ok {
		name = ours
	}
	return pflag.NormalizedName(name)
}

// spellOut writes -np N, which is mpirun's flag for the number of ranks, as the flag of the command that means it: to
// the parser of flags it would be -n with the value p.
func spellOut(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil {
		return args
	}
	flags, program := cmd.Flags(), false
	ranks := flags.Lookup("ranks")
	if ranks == nil {
		ranks, program = flags.Lookup("nproc-per-node"), true // what follows the program belongs to it
	}
	if ranks == nil {
		return args
	}
	out := slices.Clone(args)
	for i, words := 0, 0; i < len(out) && out[i] != "--" && (words < 2 || !program); i++ {
		value, np := strings.CutPrefix(out[i], "-np")
		_, err := strconv.Atoi(value)
		switch {
		case np && value == "":
			out[i] = "--" + ranks.Name
			i++
		case np && (value[0] == '=' || err == nil):
			out[i] = "--" + ranks.Name + "=" + strings.TrimPrefix(value, "=")
		case takesNext(flags, out[i]):
			i++
		case !strings.HasPrefix(out[i], "-"):
			words++ // of which the first is the command
		}
	}
	return out
}

// takesNext reports whether what was typed ends in a flag whose value is the next argument.
func takesNext(flags *pflag.FlagSet, typed string) bool {
	if name, long := strings.CutPrefix(typed, "--"); long {
		f := flags.Lookup(name) // there is none of the name min=8
		return f != nil && f.NoOptDefVal == ""
	}
	letters, short := strings.CutPrefix(typed, "-")
	for i := range letters {
		if f := flags.ShorthandLookup(letters[i : i+1]); !short || f == nil {
			return false
		} else if f.NoOptDefVal == "" {
			return i == len(letters)-1
		}
	}
	return false
}
