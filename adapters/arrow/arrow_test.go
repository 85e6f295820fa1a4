package chorusarrow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	chorusarrow "github.com/chorus-comms/chorus/adapters/arrow"
	"github.com/chorus-comms/chorus/comm"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil/worldtest"
	"github.com/chorus-comms/chorus/tensor"
)

// checked is an allocator that finds what isn't released by the end of the test.
func checked(t *testing.T) memory.Allocator {
	m := memory.NewCheckedAllocator(memory.DefaultAllocator)
	t.Cleanup(func() { m.AssertSize(t, 0) })
	return m
}

// parse makes an array of a type from JSON.
func parse(t *testing.T, dt arrow.DataType, json string) arrow.Array {
	t.Helper()
	a, _, err := array.FromJSON(checked(t), dt, strings.NewReader(json))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Release)
	return a
}

func TestTensor(t *testing.T) {
	p, f := arrow.PrimitiveTypes, arrow.FixedWidthTypes
	for _, c := range []struct {
		of arrow.DataType
		dt dtype.DType
	}{
		{p.Int8, dtype.Int8}, {p.Int16, dtype.Int16}, {p.Int32, dtype.Int32}, {p.Int64, dtype.Int64},
		{p.Uint8, dtype.Uint8}, {p.Uint16, dtype.Uint16}, {p.Uint32, dtype.Uint32}, {p.Uint64, dtype.Uint64},
		{f.Float16, dtype.Float16}, {p.Float32, dtype.Float32}, {p.Float64, dtype.Float64},
	} {
		a := parse(t, c.of, "[1, 2, 3, 4, 5]")
		part := array.NewSlice(a, 1, 4)
		defer part.Release()
		x, err := chorusarrow.Tensor(part)
		if err != nil || x.DType() != c.dt || fmt.Sprint(x.Shape()) != "[3]" || x.At(0) != 2 || x.At(2) != 4 {
			t.Errorf("%s: %v, %v", c.of, x, err)
			continue
		}
		at := unsafe.Add(unsafe.Pointer(&a.Data().Buffers()[1].Bytes()[0]), c.dt.Size())
		if x.Pointer() != at {
			t.Errorf("%s: a copy", c.of)
		}
		back, err := chorusarrow.Array(x)
		if err != nil || !array.Equal(back, part) || unsafe.Pointer(&back.Data().Buffers()[1].Bytes()[0]) != at {
			t.Errorf("%s: back %v, %v", c.of, back, err)
			continue
		}
		back.Release()
	}
	for _, of := range []arrow.DataType{f.Date32, f.Date64, f.Time32ms, f.Time64us, f.Timestamp_ns, f.Duration_s} {
		b := array.NewBuilder(checked(t), of)
		b.AppendEmptyValue()
		a := b.NewArray()
		b.Release()
		if x, err := chorusarrow.Tensor(a); err != nil || x.NumEl() != 1 || x.At(0) != 0 {
			t.Errorf("%s: %v, %v", of, x, err)
		}
		a.Release()
	}
	x, err := chorusarrow.Tensor(parse(t, p.Float32, "[]"))
	if err != nil || x.NumEl() != 0 || x.DType() != dtype.Float32 {
		t.Errorf("none: %v, %v", x, err)
	}
}

// TestLists: fixed-size lists are dimensions, also of a slice of the outer array.
func TestLists(t *testing.T) {
	of := arrow.FixedSizeListOfNonNullable(2, arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Int32))
	a := parse(t, of, "[[[1,2,3],[4,5,6]], [[7,8,9],[10,11,12]], [[13,14,15],[16,17,18]]]")
	part := array.NewSlice(a, 1, 3)
	defer part.Release()
	x, err := chorusarrow.Tensor(part)
	if err != nil || fmt.Sprint(x.Shape()) != "[2 2 3]" || x.At(0, 0, 0) != 7 || x.At(1, 1, 2) != 18 {
		t.Fatalf("%v, %v", x, err)
	}
	back, err := chorusarrow.Array(x)
	if err != nil || !array.Equal(back, part) {
		t.Errorf("%v, %v", back, err)
	}
	back.Release()
}

func TestNulls(t *testing.T) {
	a := parse(t, arrow.PrimitiveTypes.Float32, "[1, null, 3, null]")
	e := (*chorusarrow.NullsError)(nil)
	if _, err := chorusarrow.Tensor(a); !errors.As(err, &e) || e.Nulls != 2 || e.Len != 4 {
		t.Errorf("nulls: %v", err)
	}
	x, mask, err := chorusarrow.Masked(a)
	if err != nil || x.At(2) != 3 || fmt.Sprint(tensor.Slice[uint8](mask)) != "[1 0 1 0] <nil>" {
		t.Errorf("%v, %v, %v", x, mask, err)
	}
	part := array.NewSlice(a, 2, 3) // which has none
	defer part.Release()
	if x, err := chorusarrow.Tensor(part); err != nil || x.At(0) != 3 {
		t.Errorf("%v, %v", x, err)
	}
	list := parse(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), "[[1, null]]")
	if _, err := chorusarrow.Tensor(list); !errors.As(err, &e) || e.Nulls != 1 {
		t.Errorf("nulls in a list: %v", err)
	}
	for of, says := range map[arrow.DataType]string{
		arrow.FixedWidthTypes.Boolean: "uint8", arrow.BinaryTypes.String: "utf8",
	} {
		if _, err := chorusarrow.Tensor(parse(t, of, "[]")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", of, err)
		}
	}
	wide := tensor.Must(tensor.Of([]float32{1, 2, 3, 4}).View(2, 2))
	for name, x := range map[string]*tensor.Tensor{
		"strided": tensor.Must(wide.Narrow(1, 0, 1)), "no dimension": tensor.Must(tensor.Empty(dtype.Float32)),
		"bfloat16": tensor.Must(tensor.Zeros(dtype.BFloat16, 2)),
	} {
		if a, err := chorusarrow.Array(x); err == nil {
			t.Errorf("%s: %v", name, a)
		}
	}
}

func TestRecordBatch(t *testing.T) {
	ids, shared := tensor.Of([]int64{7, 8}), tensor.Must(tensor.EmptyShared(dtype.Float32, 2, 3))
	if err := shared.Fill(2.5); err != nil {
		t.Fatal(err)
	}
	b, err := chorusarrow.RecordBatch([]string{"id", "embedding"}, ids, shared)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	back, err := chorusarrow.Columns(b)
	if err != nil || b.NumRows() != 2 || !tensor.Equal(back[0], ids) || !tensor.Equal(back[1], shared) ||
		back[1].Pointer() != shared.Pointer() {
		t.Errorf("%v, %v", back, err)
	}
	if _, err := chorusarrow.RecordBatch([]string{"a", "b"}, ids, tensor.Of([]int8{1})); err == nil ||
		!strings.Contains(err.Error(), `"b" has 1 rows`) {
		t.Errorf("other rows: %v", err)
	}
	if _, err := chorusarrow.RecordBatch([]string{"a"}); err == nil {
		t.Error("no column")
	}
	null := parse(t, arrow.PrimitiveTypes.Int8, "[null]")
	bad := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "x", Type: null.DataType(), Nullable: true}}, nil),
		[]arrow.Array{null}, 1)
	defer bad.Release()
	if _, err := chorusarrow.Columns(bad); err == nil || !strings.Contains(err.Error(), `column "x" has 1 nulls`) {
		t.Errorf("nulls: %v", err)
	}
}

// batch has a column of each kind that a tensor has no form for, of a rank's own.
func batch(m memory.Allocator, rank, rows int) arrow.RecordBatch {
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	b := array.NewRecordBuilder(m, arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "s", Type: arrow.BinaryTypes.String},
		{Name: "d", Type: dict}, {Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
	}, nil))
	defer b.Release()
	for i := range rows {
		if i%2 == 1 {
			b.Field(0).AppendNull()
		} else {
			b.Field(0).(*array.Int32Builder).Append(int32(rank*100 + i))
		}
		b.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", i))
		b.Field(2).(*array.BinaryDictionaryBuilder).AppendString(fmt.Sprint("rank ", rank))
		b.Field(3).(*array.BooleanBuilder).Append(i > rank)
	}
	return b.NewRecordBatch()
}

// TestTransfer sends record batches around, of any type.
func TestTransfer(t *testing.T) {
	worldtest.Run(t, 3, func(ctx context.Context, c *comm.Comm) error {
		m := memory.NewCheckedAllocator(memory.DefaultAllocator)
		r, n := c.Rank(), c.Size()
		mine := batch(m, r, 4+r)
		last := mine.NewSlice(1, 3) // a part goes as itself
		want := batch(m, (r+n-1)%n, 4+(r+n-1)%n)
		part := want.NewSlice(1, 3)
		var sent sync.WaitGroup
		var err error
		sent.Go(func() { err = chorusarrow.Send(ctx, c, last, (r+1)%n) })
		got, from, e := chorusarrow.Recv(ctx, c, comm.AnySource)
		sent.Wait()
		if err = errors.Join(err, e); err != nil {
			return err
		}
		if from != (r+n-1)%n || !array.RecordEqual(got, part) {
			t.Errorf("rank %d got %v of %d", r, got, from)
		}
		got.Release()
		all, err := chorusarrow.Broadcast(ctx, c, mine, 1)
		if err != nil {
			return err
		}
		first := batch(m, 1, 5)
		if !array.RecordEqual(all, first) {
			t.Errorf("rank %d got %v of the root", r, all)
		}
		for _, b := range []arrow.RecordBatch{all, first, part, want, last, mine} {
			b.Release()
		}
		m.AssertSize(t, 0)
		return nil
	})
}

// TestTables all-gathers tables of several chunks, of which one has no rows, and one of another schema.
func TestTables(t *testing.T) {
	worldtest.Run(t, 3, func(ctx context.Context, c *comm.Comm) error {
		m := memory.NewCheckedAllocator(memory.DefaultAllocator)
		r := c.Rank()
		one, two := batch(m, r, 2*r), batch(m, r, 3)
		batches := []arrow.RecordBatch{one, two}
		if r == 1 {
			batches = nil
		}
		mine := array.NewTableFromRecords(one.Schema(), batches)
		all, err := chorusarrow.AllGather(ctx, c, mine)
		if err != nil {
			return err
		}
		if all.NumRows() != 3+7 || all.NumCols() != 4 {
			t.Errorf("rank %d: %d rows of %d columns", r, all.NumRows(), all.NumCols())
		}
		var firsts []int32
		for _, chunk := range all.Column(0).Data().Chunks() {
			if chunk.Len() > 0 {
				firsts = append(firsts, chunk.(*array.Int32).Value(0))
			}
		}
		if fmt.Sprint(firsts) != "[0 200 200]" {
			t.Errorf("rank %d: %v", r, firsts)
		}
		all.Release()
		mine.Release()
		other := mine
		if other = array.NewTableFromRecords(one.Schema(), nil); r == 2 {
			other.Release()
			field := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8}
			other = array.NewTableFromRecords(arrow.NewSchema([]arrow.Field{field}, nil), nil)
		}
		if _, err := chorusarrow.AllGather(ctx, c, other); !errors.Is(err, comm.ErrMismatch) ||
			!strings.Contains(err.Error(), "rank 2 has the schema") {
			t.Errorf("rank %d: another schema: %v", r, err)
		}
		other.Release()
		one.Release()
		two.Release()
		m.AssertSize(t, 0)
		return nil
	})
}

// FuzzDecode has a hostile peer.
func FuzzDecode(f *testing.F) {
	b := batch(memory.DefaultAllocator, 1, 3)
	data, err := chorusarrow.Codec{}.Encode(b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		var b arrow.RecordBatch
		if (chorusarrow.Codec{}).Decode(data, &b) == nil {
			b.Release()
		}
	})
}
