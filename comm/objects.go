package comm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"slices"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/tensor"
)

// Codec turns values into bytes and back. The bytes come from other ranks, so the format must not
// be able to carry code. Decode may keep the bytes that it gets.
type Codec interface {
	Encode(v any) ([]byte, error)
	Decode(data []byte, v any) error
}

// The codecs of this package. Gob keeps Go types exactly and is the default; JSON
// can be read by other languages.
var (
	Gob  Codec = gobCodec{}
	JSON Codec = jsonCodec{}
)

type gobCodec struct{}

func (gobCodec) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Decode(data []byte, v any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

type jsonCodec struct{}

func (jsonCodec) Encode(v any) ([]byte, error)    { return json.Marshal(v) }
func (jsonCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// MaxObjectBytes bounds an encoded object, so that a broken peer cannot make this rank allocate without end.
const MaxObjectBytes = 1 << 30

// Objects carries values that encode, over a communicator: sizes first, then the
// bytes. Every rank calls the same functions in the same order. Options are those of
// single operations, but for Async; Timeout bounds each of the two steps.
//
// If a rank's value can't be encoded, a collective returns *InvalidArgumentError on every rank
// that would have received it, and the communicator is as it was.
type Objects struct {
	C     *Comm
	Codec Codec // nil means Gob
}

func (o Objects) codec() Codec {
	if o.Codec == nil {
		return Gob
	}
	return o.Codec
}

// check refuses what object operations cannot take: they need each step's result for the next.
func (o Objects) check(op string, opts []Option) error {
	var c call
	for _, f := range opts {
		if f != nil { // which its collectives refuse, on all ranks
			f(&c)
		}
	}
	if c.work != nil {
		return o.C.invalid(op, "Async does not apply to objects")
	}
	return nil
}

func (o Objects) encode(op string, v any) ([]byte, error) {
	data, err := o.codec().Encode(v)
	if err != nil {
		return nil, o.C.invalid(op, "encoding a %T: %v", v, err)
	}
	if len(data) > MaxObjectBytes {
		return nil, o.C.invalid(op, "an encoded %T has %d bytes, more than %d", v, len(data), MaxObjectBytes)
	}
	return data, nil
}

func (o Objects) decode(op string, from int, data []byte, v any) error {
	if err := o.codec().Decode(data, v); err != nil {
		return o.C.invalid(op, "decoding what rank %d sent into a %T: %v", from, v, err)
	}
	return nil
}

// refused is announced, instead of a size, for an object that isn't sent, so that no rank waits for it.
const refused = -1

// announce returns the size to announce for encoded data.
func announce(data []byte, err error) int64 {
	if err != nil {
		return refused
	}
	return int64(len(data))
}

// size checks a length that came from another rank.
func (o Objects) size(op string, from int, n int64) (int, error) {
	if n == refused {
		return 0, o.C.invalid(op, "rank %d has refused to send its object; the error there says why", from)
	}
	if n < 0 || n > MaxObjectBytes {
		return 0, o.C.invalid(op, "rank %d announces an object of %d bytes", from, n)
	}
	return int(n), nil
}

// placer puts a tensor of the host where the communicator's are.
type placer func(*tensor.Tensor) *tensor.Tensor

// carry calls f with a function that puts tensors of the host where the communicator's are, if its backend takes none
// of the host, and brings back what they hold afterwards.
func (o Objects) carry(ctx context.Context, f func(ctx context.Context, at placer) error) error {
	d := o.C.dev()
	if o.C.placement.Load().host {
		return f(ctx, func(t *tensor.Tensor) *tensor.Tensor { return t })
	}
	s, err := takeStream(d.dev, d.priority)
	if err != nil {
		return err
	}
	defer putStream(s)
	if ctx == nil {
		ctx = context.Background()
	}
	ctx = device.WithStream(ctx, s)
	there := map[*tensor.Tensor]*tensor.Tensor{}
	failed := f(ctx, func(t *tensor.Tensor) *tensor.Tensor {
		if t != nil && err == nil {
			there[t], err = t.To(ctx, d.dev)
		}
		return there[t]
	})
	err = cmp.Or(err, failed)
	for t, x := range there {
		if err == nil {
			err = tensor.Copy(ctx, t, x)
		}
	}
	return cmp.Or(err, s.Recover(ctx))
}

// tag keeps the payloads of object collectives apart from a program's own messages, if the backend can.
func (o Objects) tag() Option {
	if !o.C.Capabilities().Tags {
		return Tag(0)
	}
	return Tag(objectTag)
}

// messages sends data to ranks, or receives it from them, as one batch.
func (o Objects) messages(ctx context.Context, opts []Option, ranks []int, data [][]byte,
	add func(*Batch, *tensor.Tensor, int, ...Option)) error {
	if len(ranks) == 0 {
		return nil
	}
	return o.carry(ctx, func(ctx context.Context, at placer) error {
		b := o.C.Batch()
		for i, r := range ranks {
			add(b, at(tensor.Of(data[i])), r, o.tag())
		}
		return b.Issue(ctx, opts...)
	})
}

// AllGather returns every rank's v, by rank.
func AllGather[T any](ctx context.Context, o Objects, v T, opts ...Option) ([]T, error) {
	const op = "all_gather_object"
	if err := o.check(op, opts); err != nil {
		return nil, err
	}
	mine, refusal := o.encode(op, v)
	sizes := make([]int64, o.C.Size())
	err := o.carry(ctx, func(ctx context.Context, at placer) error {
		return o.C.AllGatherSingle(ctx, at(tensor.Of(sizes)), at(tensor.Of([]int64{announce(mine, refusal)})), opts...)
	})
	if err != nil || refusal != nil {
		return nil, cmp.Or(err, refusal)
	}
	out := make([]*tensor.Tensor, len(sizes))
	data := make([][]byte, len(sizes))
	for r, s := range sizes {
		n, err := o.size(op, r, s)
		if err != nil {
			return nil, err
		}
		data[r] = make([]byte, n)
		out[r] = tensor.Of(data[r])
	}
	err = o.carry(ctx, func(ctx context.Context, at placer) error {
		for r := range out {
			out[r] = at(out[r])
		}
		return o.C.AllGatherV(ctx, out, at(tensor.Of(mine)), opts...)
	})
	if err != nil {
		return nil, err
	}
	values := make([]T, len(sizes))
	for r := range values {
		if err := o.decode(op, r, data[r], &values[r]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Broadcast returns root's v on every rank.
func Broadcast[T any](ctx context.Context, o Objects, v T, root int, opts ...Option) (T, error) {
	const op = "broadcast_object"
	if err := o.check(op, opts); err != nil {
		return v, err
	}
	var data []byte
	var refusal error
	if o.C.Rank() == root {
		data, refusal = o.encode(op, v)
	}
	size := []int64{announce(data, refusal)}
	broadcast := func(t *tensor.Tensor) error {
		return o.carry(ctx, func(ctx context.Context, at placer) error {
			return o.C.Broadcast(ctx, at(t), root, opts...)
		})
	}
	if err := broadcast(tensor.Of(size)); err != nil || refusal != nil {
		return v, cmp.Or(err, refusal)
	}
	if o.C.Rank() != root {
		n, err := o.size(op, root, size[0])
		if err != nil {
			return v, err
		}
		data = make([]byte, n)
	}
	if err := broadcast(tensor.Of(data)); err != nil {
		return v, err
	}
	if o.C.Rank() == root {
		return v, nil
	}
	var got T
	err := o.decode(op, root, data, &got)
	return got, err
}

// Gather returns every rank's v at root, by rank, and nil elsewhere.
func Gather[T any](ctx context.Context, o Objects, v T, root int, opts ...Option) ([]T, error) {
	const op = "gather_object"
	if err := o.check(op, opts); err != nil {
		return nil, err
	}
	mine, refusal := o.encode(op, v)
	c := o.C
	var sizes []int64
	var out *tensor.Tensor
	if c.Rank() == root {
		sizes = make([]int64, c.Size())
		out = tensor.Of(sizes)
	}
	err := o.carry(ctx, func(ctx context.Context, at placer) error {
		return c.GatherSingle(ctx, at(out), at(tensor.Of([]int64{announce(mine, refusal)})), root, opts...)
	})
	if err != nil {
		return nil, cmp.Or(err, refusal)
	}
	if c.Rank() != root {
		if refusal != nil {
			return nil, refusal
		}
		return nil, o.messages(ctx, opts, []int{root}, [][]byte{mine}, (*Batch).Send)
	}
	data := make([][]byte, c.Size())
	var from []int
	var parts [][]byte
	for r, s := range sizes {
		n, err := o.size(op, r, s)
		if err != nil { // the others' objects are on their way and received all the same
			refusal = cmp.Or(refusal, err)
			continue
		}
		data[r] = make([]byte, n)
		if r == root {
			copy(data[r], mine)
			continue
		}
		from, parts = append(from, r), append(parts, data[r])
	}
	if err := o.messages(ctx, opts, from, parts, (*Batch).Recv); err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	values := make([]T, c.Size())
	for r := range values {
		if err := o.decode(op, r, data[r], &values[r]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Scatter gives rank r root's vs[r]; vs is ignored elsewhere.
func Scatter[T any](ctx context.Context, o Objects, vs []T, root int, opts ...Option) (T, error) {
	const op = "scatter_object"
	var zero T
	if err := o.check(op, opts); err != nil {
		return zero, err
	}
	c := o.C
	encoded := make([][]byte, c.Size())
	var sizes []*tensor.Tensor
	var refusal error
	if c.Rank() == root {
		if len(vs) != c.Size() {
			refusal = c.invalid(op, "there are %d objects for %d ranks", len(vs), c.Size())
		}
		for r := 0; r < c.Size() && refusal == nil; r++ {
			encoded[r], refusal = o.encode(op, vs[r])
		}
		for _, data := range encoded { // all or none
			sizes = append(sizes, tensor.Of([]int64{announce(data, refusal)}))
		}
	}
	size := []int64{0}
	err := o.carry(ctx, func(ctx context.Context, at placer) error {
		for r := range sizes {
			sizes[r] = at(sizes[r])
		}
		return c.Scatter(ctx, at(tensor.Of(size)), sizes, root, opts...)
	})
	if err != nil || refusal != nil {
		return zero, cmp.Or(err, refusal)
	}
	if c.Rank() == root {
		var to []int
		for r := range encoded {
			if r != root {
				to = append(to, r)
			}
		}
		return vs[root], o.messages(ctx, opts, to, slices.Delete(encoded, root, root+1), (*Batch).Send)
	}
	n, err := o.size(op, root, size[0])
	if err != nil {
		return zero, err
	}
	data := make([]byte, n)
	if err := o.messages(ctx, opts, []int{root}, [][]byte{data}, (*Batch).Recv); err != nil {
		return zero, err
	}
	var got T
	err = o.decode(op, root, data, &got)
	return got, err
}

// Send sends v to rank dst; Recv there receives it.
func Send[T any](ctx context.Context, o Objects, v T, dst int, opts ...Option) error {
	if err := o.check("send_object", opts); err != nil {
		return err
	}
	data, err := o.encode("send_object", v)
	if err != nil {
		return err
	}
	return o.carry(ctx, func(ctx context.Context, at placer) error {
		if err := o.C.Send(ctx, at(tensor.Of([]int64{int64(len(data))})), dst, opts...); err != nil {
			return err
		}
		return o.C.Send(ctx, at(tensor.Of(data)), dst, opts...)
	})
}

// Recv receives the value that rank src sends with Send, and tells who sent it; src may be AnySource.
func Recv[T any](ctx context.Context, o Objects, src int, opts ...Option) (v T, from int, err error) {
	const op = "recv_object"
	if err := o.check(op, opts); err != nil {
		return v, src, err
	}
	size := []int64{0}
	from = src
	recv := func(t *tensor.Tensor, src int, opts ...Option) error {
		return o.carry(ctx, func(ctx context.Context, at placer) error {
			return o.C.Recv(ctx, at(t), src, opts...)
		})
	}
	if err := recv(tensor.Of(size), src, append(opts[:len(opts):len(opts)], From(&from))...); err != nil {
		return v, from, err
	}
	n, err := o.size(op, from, size[0])
	if err != nil {
		return v, from, err
	}
	data := make([]byte, n)
	if err := recv(tensor.Of(data), from, opts...); err != nil {
		return v, from, err
	}
	err = o.decode(op, from, data, &v)
	return v, from, err
}
