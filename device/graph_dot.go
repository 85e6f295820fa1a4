package device

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
)

// WriteDOT draws the graph's work and its order in the language of Graphviz.
func (g *Graph) WriteDOT(w io.Writer) error {
	nodes, err := g.Nodes()
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph captured {\n\tnode [shape=box]")
	for i, n := range nodes {
		label := n.Kind.String()
		if n.Name != "" && n.Name != label {
			label += ": " + n.Name
		}
		fmt.Fprintf(b, "\tn%d [label=%s]\n", i, strconv.Quote(label))
		for _, d := range n.Deps {
			fmt.Fprintf(b, "\tn%d -> n%d\n", d, i)
		}
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}
