package wire

import "encoding/binary"

// AppendField adds a field to a record: its length as a varint, and its bytes.
func AppendField[T string | []byte](record []byte, field T) []byte {
	return append(binary.AppendUvarint(record, uint64(len(field))), field...)
}

// AppendUint adds a number to a record, as a varint.
func AppendUint(record []byte, n uint64) []byte { return binary.AppendUvarint(record, n) }

// Fields reads a record that AppendField and AppendUint have made, in the same order. It believes no length before it
// has checked it. From the first fault on it returns zeros.
//
//	f := wire.ReadFields(record)
//	name, count := string(f.Bytes()), f.Uint()
//	if !f.Whole() {
//		return errors.New("a damaged record")
//	}
type Fields struct {
	rest []byte
	bad  bool
}

// ReadFields begins to read a record.
func ReadFields(record []byte) Fields { return Fields{rest: record} }

// Uint reads a number.
func (f *Fields) Uint() uint64 {
	n, k := binary.Uvarint(f.rest)
	if f.bad = f.bad || k <= 0; f.bad {
		return 0
	}
	f.rest = f.rest[k:]
	return n
}

// Bytes reads a field, which aliases the record.
func (f *Fields) Bytes() []byte {
	n := f.Uint()
	if f.bad = f.bad || n > uint64(len(f.rest)); f.bad {
		return nil
	}
	field := f.rest[:n:n]
	f.rest = f.rest[n:]
	return field
}

// Rest returns what has not been read yet; nil after a fault.
func (f *Fields) Rest() []byte {
	if f.bad {
		return nil
	}
	return f.rest
}

// More reports whether there's more to read.
func (f *Fields) More() bool { return !f.bad && len(f.rest) > 0 }

// Whole reports whether all of the record was read, and nothing was missing.
func (f *Fields) Whole() bool { return !f.bad && len(f.rest) == 0 }
