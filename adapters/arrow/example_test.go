package chorusarrow_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	chorusarrow "github.com/chorus-comms/chorus/adapters/arrow"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/tensor"
)

// A column is all-reduced where it lies, into new memory, and the result is a column again.
func Example() {
	ctx := context.Background()
	c, err := comm.New(ctx, comm.WithRank(0, 1)) // or of a launcher's ranks
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Finalize(ctx)
	schema := arrow.NewSchema([]arrow.Field{{Name: "count", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rows := strings.NewReader(`[{"count": 3}, {"count": 4}]`)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, rows)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()

	x, err := chorusarrow.Tensor(batch.Column(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	sum := tensor.Must(tensor.Empty(x.DType(), x.Shape()...))
	if err := c.AllReduce(ctx, x, comm.Sum, comm.Into(sum)); err != nil {
		fmt.Println(err)
		return
	}
	total, err := chorusarrow.Array(sum)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer total.Release()
	fmt.Println(total)
	// Output: [3 4]
}
