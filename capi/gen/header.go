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

// header returns the text of chorus.h.
func header() ([]byte, error) {
	var dtypes, ops, reds []constant
	for _, d := range dtype.All() {
		dtypes = append(dtypes, constant{"CHORUS_" + strings.ToUpper(d.String()), int(d), fmt.Sprintf("%d byte%s", d.Size(),
			plural(d.Size()))})
	}
	for _, k := range backend.Kinds() {
		ops = append(ops, constant{"CHORUS_" + strings.ToUpper(k.String()), int(k), fields(k.Operation())})
	}
	for k := backend.SumKind; k <= backend.PremulSumKind; k++ {
		reds = append(reds, constant{"CHORUS_" + strings.ToUpper(k.String()), int(k), reductions[k]})
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
	for i, line := range []string{"WINDOW: one-sided windows", "SHARE: some peers' memory can be mapped", "ABORT",
		"ANY_SOURCE: receive from CHORUS_ANY",
		"TAG", "THREADS: ranks may be threads of one process", "REGISTER: chorus_register",
		"NOTHING: operations succeed without moving data"} {
		name, comment, _ := strings.Cut(line, ": ")
		caps = append(caps, constant{"CHORUS_CAN_" + name, 1 << i, comment})
	}
	t, err := template.New("chorus.h").Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Major": 1, "Minor": 0, "SignalSlots": backend.SignalSlots,
		"Statuses": align(statuses), "DTypes": align(dtypes), "Kinds": align(ops), "Reductions": align(reds),
		"WindowKinds": align(windowKinds()), "Capabilities": align(caps),
		"KernelKinds": align(kernelKinds())})
	return out.Bytes(), err
}

// windowKinds are the operations on windows.
func windowKinds() []constant {
	return number(1, "PUT: data, count, rank, offset; visible after a signal or fence that follows",
		"GET: data, count, rank, offset", "ACCUMULATE: data, count, rank, offset, reduction; atomic for each element",
		"FETCH_OP: data, old, rank, offset, reduction", "COMPARE_AND_SWAP: data, expected, old, rank, offset",
		"SIGNAL: rank, slot; after this rank's earlier operations there",
		"WAIT_SIGNAL: rank, slot; consumes one signal of that rank",
		"FENCE: rank or CHORUS_ANY; this rank's earlier operations are complete there")
}

// kernelKinds are the kinds of kernels, with their arguments.
func kernelKinds() []constant {
	return number(1, "KERNEL_ELEMENTWISE: outs, ins and numbers of the operation; inputs are broadcast",
		"KERNEL_REDUCE: outs, in; integers: the dimensions, none for all; numbers",
		"KERNEL_SCAN: outs, in; integers: the dimension",
		"KERNEL_SOFTMAX: out, in, or gradient and result; integers: the dimension",
		"KERNEL_NORM: out, mean, 1/deviation; in, weight, bias; number epsilon; see below for backward",
		"KERNEL_MATMUL: out, a, b, c; numbers: alpha, beta; op: an activation, or 0",
		"KERNEL_TRIANGLE: out, in; integers: the diagonal",
		"KERNEL_RANGE: out; numbers: start and step, or end",
		"KERNEL_INDEX: out, in, indexes; integers: of each index size and stride of its dimension, and "+
			"1 if it may be negative")
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
