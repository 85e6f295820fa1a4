package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	handWritten = regexp.MustCompile(`EXPORT [\w *]*?\b(chorus_\w+)\(`)
	exported    = regexp.MustCompile(`(?s)//export (go\w+)\nfunc go\w+\((.*?)\) `)
	prototype   = regexp.MustCompile(`(?s)CHORUS_API chorus_status (chorus_\w+)\(([^)]*)\);`)
	parameter   = regexp.MustCompile(`(\w+)(\[\d+\])?$`)
)

// forwards returns the text of forwards.h: the functions of the header that no file of C defines. Each passes its
// arguments on to the Go function of its name. One that may wait has one parameter more: whether the host wants to be
// asked.
func forwards(root, header string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "capi/*.*"))
	if err != nil {
		return "", err
	}
	defined, parameters := map[string]bool{}, map[string]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		for _, m := range handWritten.FindAllStringSubmatch(string(text), -1) {
			defined[m[1]] = defined[m[1]] || strings.HasSuffix(f, ".c")
		}
		for _, m := range exported.FindAllStringSubmatch(string(text), -1) {
			parameters[m[1]] = len(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }))
		}
	}
	var b strings.Builder
	b.WriteString("// Functions of chorus.h that only pass their arguments on. Written by capi/gen; don't edit.\n")
	for _, m := range prototype.FindAllStringSubmatch(comment.ReplaceAllString(header, ""), -1) {
		if defined[m[1]] {
			continue
		}
		takes := strings.Join(strings.Fields(m[2]), " ")
		var arguments []string
		for one := range strings.SplitSeq(takes, ",") {
			if one == "void" {
				continue
			}
			name := parameter.FindStringSubmatch(one)
			v, err := newVariable(one)
			if err != nil || name == nil {
				return "", fmt.Errorf("%s: parameter %q: %w", m[1], one, err)
			}
			if strings.Contains(one, "const ") {
				name[1] = "(" + v.of + ")" + name[1]
			}
			arguments = append(arguments, name[1])
		}
		to := "go" + camel(m[1])
		n, known := parameters[to]
		how := "CALLS"
		switch {
		case n == len(arguments)+1:
			how, arguments = "BLOCKS", append(arguments, "checked")
		case !known || n != len(arguments):
			return "", fmt.Errorf("%s: no file of C defines it, and Go has no %s of its parameters", m[1], to)
		}
		fmt.Fprintf(&b, "\nEXPORT chorus_status %s(%s) {\n\t%s(%s(%s));\n}\n", m[1], takes, how, to, strings.Join(arguments, ", "))
	}
	return b.String(), nil
}
