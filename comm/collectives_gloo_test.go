package comm_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/comm/gloo/glootest"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
	"github.com/chorus-comms/chorus/store"
	"github.com/chorus-comms/chorus/tensor"
)

// glooSteps are collectives that PyTorch's Gloo backend and this package both run on the same inputs.
func glooSteps() (steps []glootest.Operation) {
	add := func(kind, op, dt string, count int) {
		steps = append(steps, glootest.Operation{Kind: kind, Op: op, DType: dt, Count: count, Root: len(steps)})
	}
	for _, dt := range []string{"float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8"} {
		for _, count := range []int{1, 5, 1027, 40_000} {
			ops := glootest.Ops(dt)
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
	return steps
}

// compare checks this rank's results against Gloo's: bit by bit, except for floating
// sums, products and averages. There both sides round at most n times: Gloo after every addition,
// and this package as late as it can. Each time they round by at most half the spacing of numbers
// as large as the partial results.
func likeGloo(x glootest.Operation, n, me int, got []*tensor.Tensor, want []byte) error {
	dt := glootest.Parse(x.DType)
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
			if !loose || !(math.Abs(a-w) <= float64(n)*spacing(dt)*magnitude(x, n, at)) {
				return fmt.Errorf("result %d, element %d of %d: %v, but Gloo has %v", j, i, t.NumEl(), a, w)
			}
		}
	}
	return nil
}

// magnitude bounds the partial results of element i.
func magnitude(x glootest.Operation, n, i int) float64 {
	sum, product := 0.0, 1.0
	for r := range n {
		v := math.Abs(glootest.Value(glootest.Parse(x.DType), r, i, false))
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
	testutil.SkipIfShort(t)
	t.Cleanup(glootest.Stop)
	steps := glooSteps()
	for _, n := range []int{2, 3, 4} {
		dir := t.TempDir()
		if err := glootest.Write(dir, steps); err != nil {
			t.Fatal(err)
		}
		st, err := store.ListenTCP("127.0.0.1:0", store.ServerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		ranks := make([]*glootest.Rank, n)
		for r := range ranks {
			ranks[r] = glootest.Start(t, dir, "", append(glootest.Environ(st.Addr(), r, n), "PEER_RAW=1")...)
		}
		theirs := make([][]byte, n)
		for r, rank := range ranks {
			if out, err := rank.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if theirs[r], err = os.ReadFile(filepath.Join(dir, fmt.Sprint(r))); err != nil {
				t.Fatal(err)
			}
		}
		for _, fabric := range []string{"mem", "shm", "tcp"} {
			t.Run(fmt.Sprintf("%s/world=%d", fabric, n), func(t *testing.T) {
				compareWithGloo(t, over(fabric)(t, n), steps, theirs)
			})
		}
	}
}

func compareWithGloo(t *testing.T, comms []*comm.Comm, steps []glootest.Operation, theirs [][]byte) {
	n := len(comms)
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			ctx := t.Context()
			defer c.Finalize(context.WithoutCancel(ctx))
			left := theirs[r]
			for i, x := range steps {
				got, err := x.Run(ctx, c, func(dt dtype.DType, n int) *tensor.Tensor {
					if i%2 == 0 {
						return tensor.Must(c.Empty(dt, n))
					}
					return tensor.Must(tensor.Empty(dt, n))
				})
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
				if err := likeGloo(x, n, r, got, left[:size]); err != nil {
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
