package comm_test

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/pytest"
	"github.com/chorus-comms/chorus/internal/short"
	"github.com/chorus-comms/chorus/tensor"
)

//go:embed testdata/gloo.py
var glooScript string

// glooCase is one collective that PyTorch's Gloo backend and this package both
// run on the same inputs.
type glooCase struct {
	Kind  string `json:"kind"`
	Op    string `json:"op"` // reduction, or ""
	DType string `json:"dtype"`
	Count int    `json:"count"` // elements of a rank's block
	Root  int    `json:"root"`  // modulo the world size
}

var glooReductions = map[string]comm.Reduction{"sum": comm.Sum, "product": comm.Product, "min": comm.Min,
	"max":  comm.Max,
	"band": comm.BAnd, "bor": comm.BOr, "bxor": comm.BXor, "avg": comm.Avg}

func glooCases() (cases []glooCase) {
	add := func(kind, op string, dt dtype.DType, count int) {
		cases = append(cases, glooCase{kind, op, dt.String(), count, len(cases)})
	}
	for _, dt := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Int32, dtype.Int64,
		dtype.Uint8} {
		for _, count := range []int{1, 5, 1027, 40_000} {
			ops := []string{"sum", "product", "min", "max", "avg"}
			if dt.IsInteger() {
				ops = append(ops, "band", "bor", "bxor")
			}
			if count == 40_000 { // the loops over elements are the same; what differs is how they move
				ops = []string{"sum", "max"}
			}
			for _, op := range ops {
				for _, kind := range []string{"all_reduce", "reduce", "reduce_scatter_single"} {
					add(kind, op, dt, count)
				}
			}
			for _, kind := range []string{"broadcast", "all_gather", "all_gather_single", "all_to_all_single",
				"all_to_all_v_single", "gather", "scatter"} {
				add(kind, "", dt, count)
			}
		}
	}
	return cases
}

// glooLacks reports what PyTorch's Gloo backend refuses of the cases: averages
// of integers. (It has no PREMUL_SUM, and the types from which it has no collectives at all are not among the cases.)
func glooLacks(c glooCase) bool { return c.Op == "avg" && parse(c.DType).IsInteger() }

func parse(name string) dtype.DType {
	for _, dt := range dtype.All() {
		if dt.String() == name {
			return dt
		}
	}
	panic("no dtype " + name)
}

// glooValue is element i of a rank's input, before it's rounded to dt.
func glooValue(dt dtype.DType, rank, i int) float64 {
	k := (i*7919 + rank*104729) % 251
	switch dt {
	case dtype.Float32, dtype.Float64:
		return float64(k-125) / 997
	case dtype.Float16, dtype.BFloat16:
		return float64((k%120+8)*(1-2*(k%2))) / 16
	case dtype.Uint8:
		return float64(k)
	case dtype.Int64:
		return float64((k - 125) * 400)
	}
	return float64(k - 125)
}

func glooSplit(count, sender, receiver int) int { return count * (sender + 2*receiver + 1) / 16 }

// run carries the case out and returns this rank's results.
func (x glooCase) run(ctx context.Context, c *comm.Comm, shared bool) ([]*tensor.Tensor, error) {
	n, me := c.Size(), c.Rank()
	dt, count, root := parse(x.DType), x.Count, x.Root%n
	red := glooReductions[x.Op]
	empty := func(k int) *tensor.Tensor {
		t := tensor.Must(tensor.Empty(dt, k))
		if shared {
			t = tensor.Must(c.Empty(dt, k))
		}
		if err := t.Fill(99); err != nil {
			panic(err)
		}
		return t
	}
	of := func(k int) *tensor.Tensor {
		v := make([]float64, k)
		for i := range v {
			v[i] = glooValue(dt, me, i)
		}
		t := empty(k)
		if err := t.CopyFrom(tensor.Of(v)); err != nil {
			panic(err)
		}
		return t
	}
	list := func() []*tensor.Tensor {
		l := make([]*tensor.Tensor, n)
		for r := range l {
			l[r] = empty(count)
		}
		return l
	}
	switch x.Kind {
	case "all_reduce":
		t := of(count)
		return []*tensor.Tensor{t}, c.AllReduce(ctx, t, red)
	case "reduce":
		t := of(count)
		err := c.Reduce(ctx, t, root, red)
		if me != root {
			return nil, err
		}
		return []*tensor.Tensor{t}, err
	case "broadcast":
		t := of(count)
		return []*tensor.Tensor{t}, c.Broadcast(ctx, t, root)
	case "all_gather":
		out := list()
		return out, c.AllGather(ctx, out, of(count))
	case "all_gather_single":
		out := empty(n * count)
		return []*tensor.Tensor{out}, c.AllGatherSingle(ctx, out, of(count))
	case "reduce_scatter_single":
		out := empty(count)
		return []*tensor.Tensor{out}, c.ReduceScatterSingle(ctx, out, of(n*count), red)
	case "all_to_all_single":
		out := empty(n * count)
		return []*tensor.Tensor{out}, c.AllToAllSingle(ctx, out, of(n*count))
	case "all_to_all_v_single":
		sent, got, sending, getting := make([]int, n), make([]int, n), 0, 0
		for r := range n {
			sent[r], got[r] = glooSplit(count, me, r), glooSplit(count, r, me)
			sending += sent[r]
			getting += got[r]
		}
		out := empty(getting)
		return []*tensor.Tensor{out}, c.AllToAllVSingle(ctx, out, of(sending), got, sent)
	case "gather":
		var out []*tensor.Tensor
		if me == root {
			out = list()
		}
		return out, c.Gather(ctx, out, of(count), root)
	case "scatter":
		out := empty(count)
		var in []*tensor.Tensor
		if me == root {
			blocks := of(n * count)
			for r := range n {
				in = append(in, tensor.Must(blocks.Narrow(0, r*count, count)))
			}
		}
		return []*tensor.Tensor{out}, c.Scatter(ctx, out, in, root)
	}
	return nil, fmt.Errorf("no such kind: %s", x.Kind)
}

// compare checks this rank's results against Gloo's: bit by bit, except for floating
// sums, products and averages. There both sides round at most n times, Gloo after every
// addition and this package as late as it can, each time by at most half the spacing
// of numbers as large as the partial results.
func (x glooCase) compare(n, me int, got []*tensor.Tensor, want []byte) error {
	dt := parse(x.DType)
	loose := dt.IsFloating() && (x.Op == "sum" || x.Op == "product" || x.Op == "avg")
	for j, t := range got {
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		theirs := want[:len(b)]
		want = want[len(b):]
		if bytes.Equal(b, theirs) {
			continue
		}
		ref, err := tensor.FromBytes(dt, bytes.Clone(theirs), t.NumEl())
		if err != nil {
			return err
		}
		for i := range t.NumEl() {
			a, w := t.At(i), ref.At(i)
			if a == w {
				continue
			}
			at := i
			if x.Kind == "reduce_scatter_single" {
				at += me * x.Count
			}
			if !loose || !(math.Abs(a-w) <= float64(n)*spacing(dt)*x.magnitude(n, at)) {
				return fmt.Errorf("result %d, element %d of %d: %v, but Gloo has %v", j, i, t.NumEl(), a, w)
			}
		}
	}
	return nil
}

// magnitude bounds the partial results of element i.
func (x glooCase) magnitude(n, i int) float64 {
	sum, product := 0.0, 1.0
	for r := range n {
		v := math.Abs(glooValue(parse(x.DType), r, i))
		sum += v
		product *= v
	}
	switch x.Op {
	case "product":
		return product
	case "avg":
		return sum / float64(n)
	}
	return sum
}

// spacing is the distance of 1 from the next larger number.
func spacing(dt dtype.DType) float64 {
	switch dt {
	case dtype.BFloat16:
		return 0x1p-7
	case dtype.Float16:
		return 0x1p-10
	case dtype.Float32:
		return 0x1p-23
	}
	return 0x1p-52
}

// The results of every collective equal those of PyTorch's Gloo backend.
func TestSameResultsAsGloo(t *testing.T) {
	short.Skip(t)
	dir := t.TempDir()
	cases := glooCases()
	list, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cases.json"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := pytest.Command(t, glooScript, dir)
	cmd.Env = append(cmd.Env, "GLOO_SOCKET_IFNAME=lo")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var kept []glooCase
	var refused string
	for _, x := range cases {
		if glooLacks(x) {
			refused += fmt.Sprintln(x.Kind, x.Op, x.DType)
		} else {
			kept = append(kept, x)
		}
	}
	for _, n := range []int{2, 3, 4} {
		theirs := make([][]byte, n)
		for r := range n {
			if got := read(t, filepath.Join(dir, fmt.Sprintf("refused.%d.%d", n, r))); string(got) != refused {
				t.Fatalf("Gloo refuses other cases than this test expects: %s", difference(string(got), refused))
			}
			theirs[r] = read(t, filepath.Join(dir, fmt.Sprintf("%d.%d", n, r)))
		}
		for _, fabric := range []string{"mem", "shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/world=%d", fabric, n), func(t *testing.T) {
				compareWithGloo(t, over(fabric)(t, n), kept, theirs)
			})
		}
	}
}

func compareWithGloo(t *testing.T, comms []*comm.Comm, cases []glooCase, theirs [][]byte) {
	n := len(comms)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := t.Context()
			defer c.Finalize(context.WithoutCancel(ctx))
			left := theirs[r]
			for i, x := range cases {
				got, err := x.run(ctx, c, i%2 == 0)
				if err != nil {
					t.Errorf("rank %d, %+v: %v", r, x, err)
					return
				}
				size := 0
				for _, g := range got {
					size += g.NBytes()
				}
				if size > len(left) {
					t.Errorf("rank %d, %+v: Gloo's results end early", r, x)
					return
				}
				if err := x.compare(n, r, got, left[:size]); err != nil {
					t.Errorf("rank %d, %+v: %v", r, x, err)
				}
				left = left[size:]
			}
			if len(left) > 0 {
				t.Errorf("rank %d: %d bytes of Gloo's results are left", r, len(left))
			}
		})
	}
	wg.Wait()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// difference lists the lines that only one of two texts has.
func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	only := slices.DeleteFunc(slices.Clone(as), func(s string) bool { return slices.Contains(bs, s) })
	return fmt.Sprintf("also %q, not %q", only, slices.DeleteFunc(bs,
		func(s string) bool { return slices.Contains(as, s) }))
}
