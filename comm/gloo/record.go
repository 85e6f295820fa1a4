package gloo

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// record is what a rank puts into the store, for the others to connect: who it is, where it listens, and by which
// number each rank says who it is. A record without numbers stands for those of the ranks themselves.
type record struct {
	host string
	addr address
	ids  []int64
}

// append appends the record as it's in the store.
func (r record) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(r.host)))
	b = append(b, r.host...)
	b = binary.LittleEndian.AppendUint64(b, addressBytes)
	b = r.addr.append(b)
	for _, id := range r.ids {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	return b
}

// parseRecord reads the record of a rank in a world of size ranks.
func parseRecord(b []byte, size int) (r record, err error) {
	part := func(n uint64) (p []byte) {
		if err == nil && n > uint64(len(b)) {
			err = errors.New("a record that ends early")
		}
		if err == nil {
			p, b = b[:n], b[n:]
		}
		return p
	}
	number := func() (n uint64) {
		if p := part(8); p != nil {
			n = binary.LittleEndian.Uint64(p)
		}
		return n
	}
	r.host = string(part(number()))
	at := part(number())
	if err != nil {
		return r, err
	}
	if r.addr, err = parseAddress(at); err != nil || len(b) == 0 {
		return r, err
	}
	if len(b) != 8*size {
		return r, fmt.Errorf("a record with %d bytes of numbers for a world of %d", len(b), size)
	}
	for range size {
		r.ids = append(r.ids, int64(number()))
	}
	return r, nil
}

// numbered returns the record's number of a rank.
func (r record) numbered(rank int) int64 {
	if r.ids == nil {
		return int64(rank)
	}
	return r.ids[rank]
}
