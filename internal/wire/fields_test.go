package wire

import (
	"bytes"
	"testing"
)

func TestFields(t *testing.T) {
	record := AppendUint(AppendField(AppendField(AppendUint(nil, 300), "name"), []byte{}), 1<<63)
	read := func(b []byte) (n uint64, name, empty []byte, last uint64, f Fields) {
		f = ReadFields(b)
		n, name, empty, last = f.Uint(), f.Bytes(), f.Bytes(), f.Uint()
		return
	}
	n, name, empty, last, f := read(record)
	if n != 300 || string(name) != "name" || len(empty) != 0 || last != 1<<63 || !f.Whole() || f.More() {
		t.Errorf("%d, %q, %q, %d, %t", n, name, empty, last, f.Whole())
	}
	for cut := range record {
		if _, _, _, last, f := read(record[:cut]); f.Whole() || f.More() || last != 0 {
			t.Errorf("cut at %d: whole", cut)
		}
	}
	if _, _, _, _, f := read(append(bytes.Clone(record), 0)); f.Whole() || !f.More() {
		t.Error("a byte too many: whole")
	}
}

// FuzzFields reads anything as a record: no field reaches beyond it.
func FuzzFields(f *testing.F) {
	f.Add(AppendField(AppendUint(nil, 7), "field"))
	f.Add(bytes.Repeat([]byte{0xff}, 12))
	f.Fuzz(func(t *testing.T, record []byte) {
		r := ReadFields(record)
		total := 0
		for r.More() {
			total += len(r.Bytes())
		}
		if total > len(record) {
			t.Fatalf("%d bytes of %d", total, len(record))
		}
	})
}
