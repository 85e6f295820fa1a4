package tensor

import (
	"testing"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/hostmem"
)

// TestHeader compares a header's tensor with the one that FromPointer makes, for
// ordinary, shared and impossible memory.
func TestHeader(t *testing.T) {
	block, err := hostmem.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Free()
	data := make([]float32, 16)
	odd := unsafe.Add(unsafe.Pointer(&data[0]), 1)
	var header Header
	for _, c := range []struct {
		name string
		dt   dtype.DType
		p    unsafe.Pointer
		n    int
	}{
		{"ordinary", dtype.Float32, unsafe.Pointer(&data[0]), 16},
		{"shared", dtype.Int64, block.Pointer(), 8},
		{"inside shared", dtype.Uint8, unsafe.Add(block.Pointer(), 3), 5},
		{"empty", dtype.Float32, nil, 0},
		{"nil", dtype.Float32, nil, 1},
		{"negative", dtype.Float32, unsafe.Pointer(&data[0]), -1},
		{"huge", dtype.Float64, unsafe.Pointer(&data[0]), 1 << 60},
		{"unaligned", dtype.Float32, odd, 1},
		{"unaligned bytes", dtype.Uint8, odd, 1},
		{"no type", dtype.Invalid, unsafe.Pointer(&data[0]), 1},
	} {
		want, wantErr := FromPointer(c.dt, c.p, c.n)
		got, gotErr := header.Set(c.dt, c.p, c.n)
		if (wantErr == nil) != (gotErr == nil) {
			t.Errorf("%s: Set says %v, FromPointer %v", c.name, gotErr, wantErr)
		}
		if wantErr != nil || gotErr != nil {
			continue
		}
		wseg, woff, wok := want.Shared()
		gseg, goff, gok := got.Shared()
		if got.Pointer() != want.Pointer() || got.NumEl() != want.NumEl() || got.NBytes() != want.NBytes() ||
			got.DType() != want.DType() ||
			!got.IsContiguous() || got.Dim() != 1 || got.Shape()[0] != c.n || wseg != gseg || woff != goff || wok != gok {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
	p := unsafe.Pointer(&data[0])
	if n := testing.AllocsPerRun(100, func() { header.Set(dtype.Float32, p, 16) }); n != 0 {
		t.Errorf("Set allocates %v times", n)
	}
}
