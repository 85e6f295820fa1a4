package base

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/comm/backend"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/plan"
	"github.com/chorus-comms/chorus/tensor"
)

// opOf makes an operation as the table of operations says that it looks on rank me of n: tensors of int32, each element
// different from the others.
func opOf(kind backend.Kind, me, n, root int) *backend.Op {
	row := kind.Operation()
	size := func(from, to int) int {
		if row.Uneven {
			return 1 + (from+to)%3
		}
		return 2
	}
	next := int32(100 * me)
	of := func(size int) *tensor.Tensor {
		x := make([]int32, size)
		for i := range x {
			x[i] = next
			next++
		}
		return tensor.Of(x)
	}
	side := func(s backend.Side, sizes []int) (one *tensor.Tensor, list []*tensor.Tensor) {
		if sizes == nil {
			return nil, nil
		}
		if s != backend.List {
			total := 0
			for _, k := range sizes {
				total += k
			}
			return of(total), nil
		}
		for _, k := range sizes {
			list = append(list, of(k))
		}
		return nil, list
	}
	op := &backend.Op{Kind: kind, Root: root}
	if row.Reduces {
		op.Reduce.Kind = backend.SumKind
	}
	ins, outs := row.Blocks(me, n, root, size)
	op.In, op.Ins = side(row.In, ins)
	op.Out, op.Outs = side(row.Out, outs)
	if row.Splits() {
		op.InSplits, op.OutSplits = ins, outs
	}
	return op
}

// TestLower demands that every row of the table becomes a request whose buffers are as large as the tensors, under the
// name that plans have for its family. It also demands that lists are packed and unpacked in order.
func TestLower(t *testing.T) {
	const n, root = 3, 1
	for _, kind := range backend.Collectives() {
		for me := range n {
			op := opOf(kind, me, n, root)
			q, j := plan.Request{World: n, Rank: me}, Job{}
			j.Lower(op, &q)
			if q.Collective.String() != kind.Operation().Family.String() {
				t.Fatalf("%v is %v to plans", kind, q.Collective)
			}
			if err := q.Validate(); err != nil {
				t.Errorf("%v: %v", kind, err)
			}
			var s Scratch
			if err := j.Prepare(op, &s); err != nil {
				t.Fatal(err)
			}
			if in, out := q.Sizes(); j.InBytes != in*j.Elem || j.OutBytes != out*j.Elem {
				t.Errorf("%v on rank %d: %d and %d bytes; plans expect %d and %d elements",
					kind, me, j.InBytes, j.OutBytes, in, out)
			}
			var want []int32
			for _, x := range op.Ins {
				want = append(want, ints(t, x)...)
			}
			if op.Ins != nil && !slices.Equal(intsAt(j.In, j.InBytes/4), want) {
				t.Errorf("%v: %v is packed as %v", kind, want, intsAt(j.In, j.InBytes/4))
			}
			if op.Outs != nil {
				flat := intsAt(j.Out, j.OutBytes/4)
				for i := range flat {
					flat[i] = int32(-i)
				}
				j.Unpack()
				var got []int32
				for _, x := range op.Outs {
					got = append(got, ints(t, x)...)
				}
				if !slices.Equal(got, flat) {
					t.Errorf("%v: %v is unpacked as %v", kind, flat, got)
				}
			}
			s.Free()
		}
	}
}

// TestAlone demands that a rank alone gets what it puts in, or its product with a factor.
func TestAlone(t *testing.T) {
	flat := func(one *tensor.Tensor, list []*tensor.Tensor) (all []int32) {
		if one != nil {
			list = append(list, one)
		}
		for _, x := range list {
			all = append(all, ints(t, x)...)
		}
		return all
	}
	var s Scratch
	defer s.Free()
	for _, kind := range backend.Collectives() {
		op := opOf(kind, 0, 1, 0)
		want := flat(op.In, op.Ins)
		if op.In == nil && op.Ins == nil {
			want = slices.Clone(flat(op.Out, op.Outs))
		}
		if err := Alone(op, &s); err != nil {
			t.Fatal(err)
		}
		if got := flat(op.Out, op.Outs); !slices.Equal(got, want) {
			t.Errorf("%v of %v gives %v", kind, want, got)
		}
	}
	x := []float32{1, 2}
	three := backend.Reduction{Kind: backend.PremulSumKind, Factor: 3}
	op := &backend.Op{Kind: backend.ReduceScatterSingle, In: tensor.Of(x), Out: tensor.Of(x), Reduce: three}
	if err := Alone(op, &s); err != nil || !slices.Equal(x, []float32{3, 6}) {
		t.Errorf("three times 1, 2 is %v, %v", x, err)
	}
}

// TestInPlace says for each form of operation where its buffers meet.
func TestInPlace(t *testing.T) {
	x := tensor.Of(make([]float32, 12))
	part := func(from, n int) *tensor.Tensor { return tensor.Must(x.Narrow(0, from, n)) }
	for _, c := range []struct {
		op   backend.Op
		want bool
	}{
		{backend.Op{Kind: backend.AllReduce, In: x, Out: x}, true},
		{backend.Op{Kind: backend.AllReduce, In: part(0, 4), Out: part(4, 4)}, false},
		{backend.Op{Kind: backend.Broadcast, Out: x}, true},
		{backend.Op{Kind: backend.AllGatherSingle, In: part(4, 4), Out: x}, true},
		{backend.Op{Kind: backend.AllGatherSingle, In: part(0, 4), Out: x}, false},
		{backend.Op{Kind: backend.ReduceScatterSingle, In: x, Out: part(4, 4)}, true},
		{backend.Op{Kind: backend.ReduceScatterSingle, In: x, Out: part(8, 4)}, false},
		{backend.Op{Kind: backend.GatherSingle, In: part(4, 4), Out: x, Root: 1}, true},
		{backend.Op{Kind: backend.GatherSingle, In: part(4, 4)}, false},
	} {
		q, j := plan.Request{World: 3, Rank: 1}, Job{}
		if j.Lower(&c.op, &q); q.InPlace != c.want {
			t.Errorf("%v: in place is %v", c.op.Kind, q.InPlace)
		}
	}
}

// TestWords puts descriptions into words, and demands that two of which the ranks must not be alike aren't.
func TestWords(t *testing.T) {
	seen := map[fabric.Desc]string{}
	of := func(k backend.Kind, dt dtype.DType, r backend.ReduceKind) Description {
		return Description{k, dt, r, 0}
	}
	for want, c := range map[string]struct {
		k Description
		q plan.Request
	}{
		"all_reduce(float32[8], sum)": {of(backend.AllReduce, dtype.Float32, backend.SumKind), plan.Request{Count: 8}},
		"all_reduce(float32[9], sum)": {of(backend.AllReduce, dtype.Float32, backend.SumKind), plan.Request{Count: 9}},
		"all_reduce(float32[8], max)": {of(backend.AllReduce, dtype.Float32, backend.MaxKind), plan.Request{Count: 8}},
		"broadcast(int8[8], root 2)":  {of(backend.Broadcast, dtype.Int8, 0), plan.Request{Count: 8, Root: 2}},
		"all_gather(int8[8])": {of(backend.AllGather, dtype.Int8, backend.SumKind), plan.Request{Count: 8,
			Root: 2}},
		"barrier": {of(backend.Barrier, 0, 0), plan.Request{}},
		"split": {Description{backend.AllGatherSingle, dtype.Int64, 0, ForSplit},
			plan.Request{Count: 8}},
		"all_gather_v(int8, sizes #38ab7d6f": {of(backend.AllGatherV, dtype.Int8, 0), plan.Request{Counts: []int{1, 2}}},
	} {
		var d fabric.Desc
		c.k.Fill(&d, &c.q, 0)
		if got := Words(&d); got != want && !(c.q.Counts != nil && got[:20] == want[:20]) {
			t.Errorf("%q, want %q", got, want)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have one description", want, other)
		}
		seen[d] = want
	}
}

func ints(t *testing.T, x *tensor.Tensor) []int32 {
	t.Helper()
	b, err := tensor.Slice[int32](x)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func intsAt(p unsafe.Pointer, n int) []int32 { return unsafe.Slice((*int32)(p), n) }
