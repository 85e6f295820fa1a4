package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

// writeManPages writes a page for a command and for each below it.
func writeManPages(cmd *cobra.Command, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), manPage(cmd), 0o666); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			if err := writeManPages(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage renders a command as roff with the macros of man(7).
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Chorus\" \"Chorus Manual\"\n", strings.ToUpper(manName(cmd)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s", paragraphs(long))
	if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString(".SH OPTIONS\n")
		flags.VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	}
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	manSeeAlso(&b, cmd)
	return b.Bytes()
}

func manFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	b.WriteString(".TP\n")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "\\fB\\-%s\\fR, ", roff(f.Shorthand))
	}
	value, usage := pflag.UnquoteUsage(f)
	fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.Name))
	if value != "" {
		fmt.Fprintf(b, " \\fI%s\\fR", roff(value))
	}
	fmt.Fprintf(b, "\n%s", roff(usage))
	if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" {
		fmt.Fprintf(b, " (default %s)", roff(d))
	}
	b.WriteString("\n")
}

func manSeeAlso(b *bytes.Buffer, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, manName(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, manName(sub))
		}
	}
	if len(pages) > 0 {
		for i, p := range pages {
			pages[i] = fmt.Sprintf("\\fB%s\\fR(1)", roff(p))
		}
		fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(pages, ", "))
	}
}

// paragraphs renders text in which blank lines part the paragraphs.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(strings.TrimSpace(p)) + "\n")
	}
	return b.String()
}

// roff protects text from being read as requests and escapes.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
