// Command gonum fits a line through points that are spread over the ranks, with gonum's matrices. Each rank sums up its
// own points, the sums are all-reduced where they lie, and every rank solves the same small system.
//
//	cd examples/gonum && go build && chorus run -n 4 ./gonum
//
// It's a module of its own, so that Chorus itself doesn't depend on gonum.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

const (
	points = 10000 // of each rank
	dims   = 8
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := comm.New(ctx)
	if err != nil {
		return err
	}
	defer c.Finalize(ctx)
	x, y := observe(c.Rank())

	// The normal equations (XᵀX)w = Xᵀy are sums over points. Both lie in one matrix, so that one all-reduce does for
	// both.
	sums := mat.NewDense(dims, dims+1, nil)
	xx := sums.Slice(0, dims, 0, dims).(*mat.Dense) // views
	xy := sums.Slice(0, dims, dims, dims+1).(*mat.Dense)
	xx.Mul(x.T(), x)
	xy.Mul(x.T(), y)
	if err := AllReduce(ctx, c, sums, comm.Sum); err != nil {
		return err
	}
	var w mat.Dense
	if err := w.Solve(xx, xy); err != nil {
		return err
	}

	// An ordinary []float64: the sum of the squared errors, and the number of points.
	var off mat.Dense
	off.Mul(x, &w)
	off.Sub(&off, y)
	total := []float64{mat.Dot(off.ColView(0), off.ColView(0)), points}
	if err := c.AllReduce(ctx, tensor.Of(total), comm.Sum); err != nil {
		return err
	}
	for i := range dims {
		if d := math.Abs(w.At(i, 0) - truth(i)); d > 0.01 {
			return fmt.Errorf("rank %d: weight %d is %v, which is wrong by %v", c.Rank(), i, w.At(i, 0), d)
		}
	}
	fmt.Printf("rank %d of %d: %.2f from %v points, with an error of %.3f\n", c.Rank(), c.Size(), mat.Col(nil, 0, &w),
		total[1], math.Sqrt(total[0]/total[1]))
	return nil
}

// AllReduce combines a matrix over all ranks in place. It must have the same shape on all of them.
//
// Rows of a matrix lie RawMatrix().Stride apart. Where that is the number of columns they are one piece of memory, and
// are reduced where they lie. A view of some columns of a wider matrix has gaps, in which lie elements of others: it
// goes by a copy.
func AllReduce(ctx context.Context, c *comm.Comm, m *mat.Dense, r comm.Reduction) error {
	raw := m.RawMatrix()
	if raw.Rows <= 1 || raw.Stride == raw.Cols {
		return c.AllReduce(ctx, tensor.Of(raw.Data[:raw.Rows*raw.Cols]), r)
	}
	whole := mat.DenseCopyOf(m)
	if err := c.AllReduce(ctx, tensor.Of(whole.RawMatrix().Data), r); err != nil {
		return err
	}
	m.Copy(whole)
	return nil
}

// truth is the line.
func truth(i int) float64 { return float64(i) - 3.5 }

// observe draws a rank's points, a row each, and their values.
func observe(rank int) (x, y *mat.Dense) {
	random := rand.New(rand.NewPCG(uint64(rank), 1))
	x, y = mat.NewDense(points, dims, nil), mat.NewDense(points, 1, nil)
	for i := range points {
		v := 0.1 * random.NormFloat64()
		for j := range dims {
			x.Set(i, j, random.NormFloat64())
			v += x.At(i, j) * truth(j)
		}
		y.Set(i, 0, v)
	}
	return x, y
}
