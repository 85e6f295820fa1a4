package main

import (
	"strings"

	"github.com/chorus-comms/chorus/comm/backend"
)

// fields says in words which fields of chorus_op an operation uses.
func fields(o *backend.Operation) string {
	named := func(name string, s backend.Side, root bool) string {
		if s == backend.List {
			name += "s"
		}
		if root && o.Into() {
			return name + " (root only; may be one)"
		}
		if root {
			return name + " (root only)"
		}
		return name
	}
	in, out := named("in", o.In, o.RootIn), named("out", o.Out, o.RootOut)
	var text string
	switch {
	case o.In == backend.Nothing && o.Out == backend.Nothing:
		return "no tensor"
	case o.In == backend.Nothing && o.Root:
		text = "out (root's is the source)"
	case o.In == backend.Nothing:
		return "out, peer or CHORUS_ANY, tag"
	case o.Out == backend.Nothing:
		return "in, peer, tag"
	case o.Splits():
		text = "in, out, in_splits, out_splits"
	case o.Into():
		text = "in, " + out
		if !o.RootOut {
			text += " (may be one)"
		}
	case o.In != backend.Part && o.Out != backend.Part && o.Uneven:
		text = in + ", " + out + " of any sizes"
	case o.In != backend.Part && o.Out != backend.Part:
		text = in + ", " + out + ": n equal blocks each"
	case o.Uneven && o.Out == backend.Part:
		text = in + " of any sizes, the same on all ranks; " + out
	case o.Uneven:
		text = in + ", " + out + " of any sizes, the same on all ranks"
	case o.In == backend.List:
		text = in + ": out_count each; " + out
	case o.Out == backend.List:
		text = in + ", " + out + ": in_count each"
	case o.In == backend.Whole:
		text = in + ": n * out_count; " + out
	default:
		text = in + ", " + out + ": n * in_count"
	}
	for _, more := range []struct {
		has  bool
		name string
	}{{o.Root, "root"}, {o.Reduces, "reduction"}} {
		if more.has && strings.Contains(text[strings.LastIndex(text, ";")+1:], ":") {
			text += "; " + more.name
		} else if more.has {
			text += ", " + more.name
		}
	}
	return text
}

// reductions says what needs saying about a reduction.
var reductions = map[backend.ReduceKind]string{
	backend.MinKind: "NaN wins", backend.MaxKind: "NaN wins",
	backend.BAndKind: "integers and bool", backend.BOrKind: "integers and bool", backend.BXorKind: "integers and bool",
	backend.AvgKind:       "the sum divided by n; integers truncate toward zero",
	backend.PremulSumKind: "the sum of factor times input; floating and complex types",
}
