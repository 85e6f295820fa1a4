package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
)

//go:embed chorus.h.tmpl
var text string

// constant is one enumerator.
type constant struct {
	Name    string
	Value   int
	Comment string
}

// number makes enumerators; a comment follows the name after a colon.
func number(from int, lines ...string) []constant {
	var list []constant
	for i, line := range lines {
		name, comment, _ := strings.Cut(line, ": ")
		list = append(list, constant{"CHORUS_" + name, from + i, comment})
	}
	return list
}

// align puts the comments of a list into one column.
func align(list []constant) []constant {
	width := 0
	for _, c := range list {
		width = max(width, len(fmt.Sprint(c.Name, c.Value)))
	}
	for i, c := range list {
		if c.Comment != "" {
			list[i].Comment = strings.Repeat(" ", width-len(fmt.Sprint(c.Name, c.Value))+1) + "/* " + c.Comment + " */"
		}
	}
	return list
}

// kinds says which fields each operation uses.
var kinds = map[backend.Kind]string{
	backend.Send:                "in, peer, tag",
	backend.Recv:                "out, peer or CHORUS_ANY, tag",
	backend.Broadcast:           "out (root's is the source), root",
	backend.AllReduce:           "in, out (may be one), reduction",
	backend.Reduce:              "in, out (root only; may be one), root, reduction",
	backend.AllGather:           "in, outs: in_count each",
	backend.AllGatherSingle:     "in, out: n * in_count",
	backend.AllGatherV:          "in, outs of any sizes, the same on all ranks",
	backend.ReduceScatter:       "ins: out_count each; out, reduction",
	backend.ReduceScatterSingle: "in: n * out_count; out, reduction",
	backend.ReduceScatterV:      "ins of any sizes, the same on all ranks; out, reduction",
	backend.AllToAll:            "ins, outs of any sizes",
	backend.AllToAllSingle:      "in, out: n equal blocks each",
	backend.AllToAllVSingle:     "in, out, in_splits, out_splits",
	backend.Barrier:             "no tensor",
	backend.Scatter:             "ins (root only): out_count each; out, root",
	backend.Gather:              "in, outs (root only): in_count each; root",
	backend.GatherSingle:        "in, out (root only): n * in_count; root",
}

// reductions says what needs saying about a reduction.
var reductions = map[backend.ReduceKind]string{
	backend.MinKind: "NaN wins", backend.MaxKind: "NaN wins",
	backend.BAndKind: "integers and bool", backend.BOrKind: "integers and bool", backend.BXorKind: "integers and bool",
	backend.AvgKind:       "the sum divided by n; integers truncate toward zero",
	backend.PremulSumKind: "the sum of factor times input; floating and complex types",
}

// reductionNames are the names that C programs use, which know no operators.
var reductionNames = map[backend.ReduceKind]string{
	backend.SumKind: "SUM", backend.ProductKind: "PRODUCT", backend.MinKind: "MIN", backend.MaxKind: "MAX", backend.BAndKind: "BAND",
	backend.BOrKind: "BOR", backend.BXorKind: "BXOR", backend.AvgKind: "AVG", backend.PremulSumKind: "PREMUL_SUM",
}

// header returns the text of chorus.h.
func header() ([]byte, error) {
	var dtypes, ops, reds []constant
	for _, d := range dtype.All() {
		dtypes = append(dtypes, constant{"CHORUS_" + strings.ToUpper(d.String()), int(d), fmt.Sprintf("%d byte%s", d.Size(), plural(d.Size()))})
	}
	for _, k := range backend.Kinds() {
		fields, ok := kinds[k]
		if !ok {
			return nil, fmt.Errorf("operation %v is not described", k)
		}
		ops = append(ops, constant{"CHORUS_" + strings.ToUpper(k.String()), int(k), fields})
	}
	for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
		reds = append(reds, constant{"CHORUS_" + reductionNames[k], int(k), reductions[k]})
	}
	statuses := append(number(0, "OK",
		"INVALID_ARGUMENT: refused before any byte moved; nothing has changed",
		"MISMATCH: ranks call different operations",
		"TIMEOUT",
		"PEER_LOST: a rank died, or its link broke",
		"ABORTED: a rank called chorus_comm_abort, or was interrupted in a collective",
		"UNSUPPORTED: by the backend, the device or this machine",
		"INTERNAL: what should not have happened",
		"FINALIZED: the communicator is finalized",
		"CANCELED: a message was given up; the communicator stays usable",
		"OUT_OF_MEMORY: of a device",
		"WORK_FAILED: of a stream, which carries it until chorus_stream_recover, for a reason that is none of the above"),
		number(16,
			"PENDING: the work is under way",
			"INTERRUPTED: the host's check said so; a work goes on, a synchronous collective has aborted its communicator",
			"PANICKED: a bug of the library was caught; it can't be used any more",
			"FORKED: the library does not work in a child made by fork")...)
	var caps []constant
	for i, line := range []string{"WINDOW: one-sided windows", "SHARE: some peers' memory can be mapped", "ABORT", "ANY_SOURCE: receive from CHORUS_ANY",
		"TAG", "THREADS: ranks may be threads of one process", "REGISTER: chorus_register", "NOTHING: operations succeed without moving data"} {
		name, comment, _ := strings.Cut(line, ": ")
		caps = append(caps, constant{"CHORUS_CAN_" + name, 1 << i, comment})
	}
	windows := number(1, "PUT: data, count, rank, offset; visible after a signal or fence that follows",
		"GET: data, count, rank, offset", "ACCUMULATE: data, count, rank, offset, reduction; atomic for each element",
		"FETCH_OP: data, old, rank, offset, reduction", "COMPARE_AND_SWAP: data, expected, old, rank, offset",
		"SIGNAL: rank, slot; after this rank's earlier operations there", "WAIT_SIGNAL: rank, slot; consumes one signal of that rank",
		"FENCE: rank or CHORUS_ANY; this rank's earlier operations are complete there")
	t, err := template.New("chorus.h").Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Major": 1, "Minor": 0, "SignalSlots": backend.SignalSlots,
		"Statuses": align(statuses), "DTypes": align(dtypes), "Kinds": align(ops), "Reductions": align(reds),
		"WindowKinds": align(windows), "Capabilities": align(caps)})
	return out.Bytes(), err
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
