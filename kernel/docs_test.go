package kernel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/kernel/ops"
)

// The tables of docs/kernels.md are those of the package.
func TestDocTables(t *testing.T) {
	mark := func(yes bool) string {
		if yes {
			return "yes"
		}
		return ""
	}
	var e, r, sc strings.Builder
	e.WriteString("| operation | inputs | numbers | results | type | float | integer | bool | complex |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, o := range ops.All() {
		fmt.Fprintf(&e, "| `%s` | %d | %d | %d | %v | %s | %s | %s | %s |\n", o.Name, o.Ins, o.Numbers+o.Integers,
			o.Results(), o.Rule,
			mark(o.Float != ""), mark(o.Int != ""), mark(o.Bool != ""), mark(o.Complex != ""))
	}
	r.WriteString("| reduction | numbers | results | float | integer, bool | complex |\n|---|---|---|---|---|---|\n")
	for _, x := range Reductions() {
		fmt.Fprintf(&r, "| `%s` | %d | %d | %s | %s | %s |\n", x.Name, x.Numbers, x.Results(), mark(x.real), mark(x.whole),
			mark(x.complex != nil))
	}
	sc.WriteString("| scan | results | float | integer, bool | complex |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(scans)) {
		x := scans[name]
		fmt.Fprintf(&sc, "| `%s` | %d | %s | %s | %s |\n", name, x.Results(), mark(x.real), mark(x.whole), mark(x.complex != nil))
	}
	testutil.CheckDocTables(t, "../docs/kernels.md", map[string]string{"elementwise": e.String(), "reductions": r.String(),
		"scans": sc.String()})
}
