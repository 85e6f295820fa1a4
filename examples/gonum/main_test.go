package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/store"
)

// TestMain: the test binary is also the program of the ranks.
func TestMain(m *testing.M) {
	if os.Getenv("GONUM_EXAMPLE_RANK") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, diagnostics bytes.Buffer
	job := launch.Job{Command: []string{os.Args[0]}, RanksPerNode: 3, Env: append(os.Environ(), "GONUM_EXAMPLE_RANK=1"),
		Stdout: &out, Stderr: &diagnostics}
	if err := job.Run(ctx); err != nil {
		t.Fatalf("%v\n%s", err, &diagnostics)
	}
	const want = "of 3: [-3.50 -2.50 -1.50 -0.50 0.50 1.50 2.50 3.50] from 30000 points, with an error of 0.100\n"
	if strings.Count(out.String(), want) != 3 {
		t.Errorf("not three times %q:\n%s", want, &out)
	}
}

// TestStrides reduces a matrix, columns of a wider one, a row, and nothing.
func TestStrides(t *testing.T) {
	const ranks = 3
	st := store.NewHash(time.Minute)
	defer st.Close()
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for r := range ranks {
		all.Go(func() {
			c, err := comm.New(t.Context(), comm.WithRank(r, ranks), comm.WithStore(st), comm.WithFabric("mem"))
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = errors.Join(strides(t, c), c.Finalize(t.Context()))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func strides(t *testing.T, c *comm.Comm) error {
	whole := mat.NewDense(3, 4, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	if err := AllReduce(t.Context(), c, whole, comm.Sum); err != nil {
		return err
	}
	columns := whole.Slice(0, 3, 1, 3).(*mat.Dense)
	if err := AllReduce(t.Context(), c, columns, comm.Sum); err != nil {
		return err
	}
	if err := AllReduce(t.Context(), c, whole.Slice(2, 3, 0, 2).(*mat.Dense), comm.Sum); err != nil {
		return err
	}
	want := mat.NewDense(3, 4, []float64{0, 9, 18, 9, 12, 45, 54, 21, 72, 243, 90, 33})
	if !mat.Equal(whole, want) {
		t.Errorf("rank %d: %v, want %v", c.Rank(), mat.Formatted(whole), mat.Formatted(want))
	}
	return AllReduce(t.Context(), c, &mat.Dense{}, comm.Sum)
}
