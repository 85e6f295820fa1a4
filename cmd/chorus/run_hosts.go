package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/chorus-comms/chorus/config"
	"github.com/chorus-comms/chorus/internal/sys"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/launch/hosts"
	"github.com/chorus-comms/chorus/secure"
)

// hostFlags are the flags of chorus run by which it starts the launchers of several hosts.
type hostFlags struct {
	list, file string
	ssh        string
	remote     string
	env        []string
}

// hostFlagNames are those that the launchers of the hosts don't get.
var hostFlagNames = []string{"host", "hostfile", "ssh", "remote-chorus", "env", "nnodes", "nproc-per-node"}

func (f *hostFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&f.list, "host", "H", "",
		"hosts that chorus run starts launchers on by ssh, with their ranks: host1:2,host2:2")
	fs.StringVar(&f.file, "hostfile", "", "file with the hosts, one on each line: host slots=2, or host:2")
	fs.StringVar(&f.ssh, "ssh", "ssh", "with -H or --hostfile: the command ssh with arguments, such as \"ssh -F FILE\"")
	fs.StringVar(&f.remote, "remote-chorus", "chorus",
		"with -H or --hostfile: chorus on the other hosts, a path or a name in PATH")
	fs.StringArrayVarP(&f.env, "env", "x", nil,
		"with -H or --hostfile: another variable that the hosts get, NAME or NAME=VALUE, besides CHORUS_* and TORCHCOMM_*")
	_ = cmd.RegisterFlagCompletionFunc("host", cobra.NoFileCompletions) // fails for a flag that has one
}

// given reports whether the flags name hosts.
func (f *hostFlags) given() bool { return f.list != "" || f.file != "" }

// parse returns the hosts.
func (f *hostFlags) parse() ([]hosts.Host, error) {
	if f.list != "" && f.file != "" {
		return nil, usagef("--host and --hostfile exclude each other")
	}
	if f.list != "" {
		all, err := hosts.ParseHosts(f.list)
		if err != nil {
			return nil, usagef("--host: %w", err)
		}
		return all, nil
	}
	text, err := sys.ReadRegular(f.file, maxHostfile)
	if err != nil {
		return nil, usagef("--hostfile: %s: %w", f.file, err)
	}
	all, err := hosts.ParseHostfile(string(text))
	if err != nil {
		return nil, usagef("--hostfile: %s: %w", f.file, err)
	}
	return all, nil
}

// maxHostfile bounds a hostfile. It's far more than one of the most nodes needs.
const maxHostfile = 16 << 20

// onHosts runs the job on the hosts that the flags name.
func (f *runFlags) onHosts(cmd *cobra.Command, args []string) error {
	all, err := f.hosts.parse()
	if err != nil {
		return err
	}
	fs := cmd.Flags()
	if err := f.suits(fs, all); err != nil {
		return err
	}
	var check launch.Job // what doesn't depend on the host is refused here
	check.Nodes = len(all)
	if err := f.conf(&check); err != nil {
		return usagef("--rdzv-conf: %w", err)
	}
	if f.notPositive() {
		return errNotPositive()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := parseNproc(f.nprocPerNode); err != nil && f.nprocPerNode != "gpu" {
		return usagef("--nproc-per-node: %w", err)
	}
	secret, err := jobSecret()
	if err != nil {
		return err
	}
	env, err := f.hosts.environ()
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(f.nprocPerNode); err == nil {
		for i := range all {
			all[i].Slots = cmp.Or(all[i].Slots, n)
		}
	}
	h := &hosts.Job{
		Hosts: all, SSH: strings.Fields(f.hosts.ssh), Remote: f.hosts.remote, Self: []string{self, "node"},
		Orders: hosts.Orders{Secret: secret, Dir: dir, Env: env, Flags: passedFlags(fs), Program: args,
			Color: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""},
		Flags:       f.rankFlags,
		Meet:        f.rdzvEndpoint == "" && f.masterAddr == "",
		JoinTimeout: f.joinTimeout, LostAfter: f.heartbeat, Grace: f.grace,
	}
	if check.JoinTimeout > 0 {
		h.JoinTimeout = check.JoinTimeout
	}
	if len(h.SSH) == 0 || f.hosts.remote == "" {
		return usagef("--ssh and --remote-chorus must not be empty")
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		h.Stdin = os.Stdin
	}
	h.Attach(os.Stdout, os.Stderr)
	return h.Run(cmd.Context())
}

// suits refuses flags that don't go with hosts.
func (f *runFlags) suits(fs *pflag.FlagSet, all []hosts.Host) error {
	for _, name := range []string{"node-rank", "standalone"} {
		if fs.Changed(name) {
			return usagef("--%s doesn't go with -H or --hostfile: nodes are numbered in the order of the hosts", name)
		}
	}
	if fs.Changed("nnodes") {
		switch least, most, err := parseNnodes(f.nnodes); {
		case err != nil:
			return usagef("--nnodes: %w", err)
		case least != most:
			return usagef("--nnodes %s: the hosts of -H and --hostfile don't change; start chorus run on each node instead",
				f.nnodes)
		case most != len(all):
			return usagef("--nnodes %d, but there are %d hosts", most, len(all))
		}
	}
	named := slices.ContainsFunc(all, func(h hosts.Host) bool { return h.Slots > 0 })
	if named && fs.Changed("nproc-per-node") {
		return usagef("the hosts have numbers of ranks, and so does --nproc-per-node, for each host: give one of them")
	}
	return nil
}

// rankFlags say how many ranks a host has.
func (f *runFlags) rankFlags(h hosts.Host) []string {
	n := f.nprocPerNode
	if h.Slots > 0 {
		n = strconv.Itoa(h.Slots)
	}
	return []string{"--nproc-per-node=" + n}
}

// passedFlags are the flags that the launchers of all hosts get.
func passedFlags(fs *pflag.FlagSet) (flags []string) {
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(hostFlagNames, f.Name) {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				flags = append(flags, "--"+f.Name+"="+value)
			}
			return
		}
		flags = append(flags, "--"+f.Name+"="+f.Value.String())
	})
	return flags
}

// jobSecret returns the text of the secret that the environment names, or of a new one.
func jobSecret() (string, error) {
	c, err := config.Load(nil)
	if err != nil {
		return "", err
	}
	p, err := secure.Load(c)
	switch {
	case err != nil:
		return "", err
	case p.Secret.IsZero():
		return secure.Generate(), nil
	case c.SecretFile != "":
		text, err := secure.ReadText(c.SecretFile)
		return strings.TrimSpace(string(text)), err
	}
	return string(c.Secret), nil
}

// ofOneHost are the variables that mean something on one host or to one rank only, or that orders have a place for.
var ofOneHost = []string{"CHORUS_SECRET", "CHORUS_SECRET_FILE", "CHORUS_RUN", "CHORUS_STORE_ADDR", "CHORUS_HOST_ID",
	"CHORUS_ADDR", "CHORUS_ADVERTISE", "TORCHCOMM_RANK", "TORCHCOMM_SIZE"}

// environ returns the variables that the hosts get.
func (f *hostFlags) environ() (env []string, err error) {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		ours := strings.HasPrefix(name, "CHORUS_") || strings.HasPrefix(name, "TORCHCOMM_")
		if ours && !slices.Contains(ofOneHost, name) {
			env = append(env, e)
		}
	}
	for _, e := range f.env {
		name, _, has := strings.Cut(e, "=")
		value, set := os.LookupEnv(name)
		switch {
		case name == "":
			return nil, usagef("--env: want NAME or NAME=VALUE, not %q", e)
		case has:
			env = append(env, e)
		case !set:
			return nil, usagef("--env: there is no variable %s", name)
		default:
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// newNodeCmd is for chorus run alone.
func newNodeCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "node",
		Short:  "Be the launcher of one host, for chorus run -H",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return hosts.Node(os.Stdin, os.Stdout, func(o *hosts.Orders) (*launch.Job, error) {
				job, err := ordered(cmd.Context(), o)
				if bad := (*usageError)(nil); errors.As(err, &bad) {
					err = fmt.Errorf("%w%w", err, silent{launch.ErrArgument})
				}
				return job, err
			})
		},
	}
}

// silent is an error that adds no text.
type silent struct{ err error }

func (s silent) Error() string { return "" }
func (s silent) Unwrap() error { return s.err }

// ordered makes the job of one host's orders.
func ordered(ctx context.Context, o *hosts.Orders) (*launch.Job, error) {
	var f runFlags
	cmd := &cobra.Command{Use: "run"}
	f.add(cmd)
	flags := append(o.Flags, "--nnodes="+strconv.Itoa(o.Nodes))
	if o.Nodes > 1 {
		flags = append(flags, "--node-rank="+strconv.Itoa(o.Node))
	}
	if o.Endpoint != "" {
		flags = append(flags, "--rdzv-endpoint="+o.Endpoint)
	}
	if err := cmd.ParseFlags(flags); err != nil {
		return nil, usage(err)
	}
	return f.prepared(ctx, o.Program)
}
