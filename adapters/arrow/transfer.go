package chorusarrow

import (
	"bytes"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/chorus-comms/chorus/comm"
)

// Codec encodes record batches and tables for comm.Objects, in Arrow's IPC format. It carries every type, nulls,
// dictionaries and metadata.
type Codec struct{}

var _ comm.Codec = Codec{}

// Encode implements comm.Codec, for an arrow.RecordBatch or an arrow.Table.
func (Codec) Encode(v any) (data []byte, err error) {
	var b bytes.Buffer
	write := func(s *arrow.Schema, each func(w *ipc.Writer) error) ([]byte, error) {
		w := ipc.NewWriter(&b, ipc.WithSchema(s))
		err := each(w)
		if e := w.Close(); err == nil {
			err = e
		}
		return b.Bytes(), err
	}
	switch x := v.(type) {
	case arrow.RecordBatch:
		return write(x.Schema(), func(w *ipc.Writer) error { return w.Write(x) })
	case arrow.Table:
		return write(x.Schema(), func(w *ipc.Writer) error {
			r := array.NewTableReader(x, 0)
			defer r.Release()
			for r.Next() {
				if err := w.Write(r.RecordBatch()); err != nil {
					return err
				}
			}
			return r.Err()
		})
	}
	return nil, fmt.Errorf("chorusarrow: a %T is neither an arrow.RecordBatch nor an arrow.Table", v)
}

// Decode implements comm.Codec, into an *arrow.RecordBatch or an *arrow.Table.
func (Codec) Decode(data []byte, v any) error {
	limit := int64(len(data))
	r, err := ipc.NewReader(bytes.NewReader(data), ipc.WithBodySizeLimit(limit), ipc.WithMetadataSizeLimit(limit))
	if err != nil {
		return err
	}
	defer r.Release()
	var all []arrow.RecordBatch
	defer func() {
		for _, b := range all {
			b.Release()
		}
	}()
	for r.Next() {
		b := r.RecordBatch()
		b.Retain()
		all = append(all, b)
	}
	if err := r.Err(); err != nil {
		return err
	}
	switch x := v.(type) {
	case *arrow.RecordBatch:
		if len(all) != 1 {
			return fmt.Errorf("chorusarrow: %d record batches, not one", len(all))
		}
		*x, all = all[0], nil
	case *arrow.Table:
		*x = array.NewTableFromRecords(r.Schema(), all)
	default:
		return fmt.Errorf("chorusarrow: a %T is neither an *arrow.RecordBatch nor an *arrow.Table", v)
	}
	return nil
}

func objects(c *comm.Comm) comm.Objects { return comm.Objects{C: c, Codec: Codec{}} }

// Send sends a record batch to rank dst; Recv there receives it.
func Send(ctx context.Context, c *comm.Comm, b arrow.RecordBatch, dst int, opts ...comm.Option) error {
	return comm.Send(ctx, objects(c), b, dst, opts...)
}

// Recv receives the record batch that rank src sends with Send; src may be comm.AnySource. from is the sender. The
// caller releases the batch.
func Recv(ctx context.Context, c *comm.Comm, src int, opts ...comm.Option) (b arrow.RecordBatch, from int, err error) {
	return comm.Recv[arrow.RecordBatch](ctx, objects(c), src, opts...)
}

// Broadcast returns root's record batch on every rank; b is ignored elsewhere. The caller releases the batch: on the
// root it's b, once more retained.
func Broadcast(ctx context.Context, c *comm.Comm, b arrow.RecordBatch, root int,
	opts ...comm.Option) (arrow.RecordBatch, error) {
	got, err := comm.Broadcast(ctx, objects(c), b, root, opts...)
	if err != nil {
		return nil, err
	}
	if c.Rank() == root {
		got.Retain()
	}
	return got, nil
}

// AllGather returns the rows of every rank's table, by rank, as one table. Schemas must be equal; numbers of rows
// differ as they like. The caller releases the table.
func AllGather(ctx context.Context, c *comm.Comm, t arrow.Table, opts ...comm.Option) (arrow.Table, error) {
	all, err := comm.AllGather(ctx, objects(c), t, opts...)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, one := range all {
			one.Release()
		}
	}()
	schema := all[0].Schema()
	columns := make([]arrow.Column, schema.NumFields())
	for i := range columns {
		var chunks []arrow.Array
		for r, one := range all {
			if !one.Schema().Equal(schema) {
				return nil, fmt.Errorf("chorusarrow: all-gather: %w: rank %d has the schema\n%v\nand rank 0 has\n%v",
					comm.ErrMismatch, r, one.Schema(), schema)
			}
			chunks = append(chunks, one.Column(i).Data().Chunks()...)
		}
		data := arrow.NewChunked(schema.Field(i).Type, chunks)
		columns[i] = *arrow.NewColumn(schema.Field(i), data)
		data.Release()
	}
	defer func() {
		for i := range columns {
			columns[i].Release()
		}
	}()
	rows := int64(0)
	for _, one := range all {
		rows += one.NumRows()
	}
	return array.NewTable(schema, columns, rows), nil
}
