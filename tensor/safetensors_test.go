package tensor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
)

// safetensorsFile puts a file together from its parts.
func safetensorsFile(head string, data ...byte) []byte {
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), []byte(head), data)
}

func TestSafetensorsRoundTrip(t *testing.T) {
	for name, make := range layouts {
		a := &Archive{Tensors: map[string]*Tensor{}}
		if name != "heap" {
			a.Metadata = map[string]string{"format": "pt", "layout \"quoted\" <&>": name, "": ""}
		}
		for dt := range safetensorsNames {
			for _, shape := range shapes {
				x := make(dt, shape)
				number(x)
				a.Tensors[fmt.Sprint("layer.", dt, shape, " \"ü\"")] = x
			}
		}
		var first, second bytes.Buffer
		for _, b := range []*bytes.Buffer{&first, &second} {
			if err := WriteSafetensors(b, a); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Error("the same archive gave different files")
		}
		if n := binary.LittleEndian.Uint64(first.Bytes()); n%8 != 0 {
			t.Errorf("a header of %d bytes leaves the data unaligned", n)
		}
		for _, r := range []io.Reader{bytes.NewReader(first.Bytes()), io.MultiReader(&first)} {
			got, err := ReadSafetensors(r)
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(got.Metadata, a.Metadata) || (got.Metadata == nil) != (a.Metadata == nil) {
				t.Errorf("metadata %v, want %v", got.Metadata, a.Metadata)
			}
			if !maps.EqualFunc(got.Tensors, a.Tensors, Equal) {
				t.Errorf("the tensors of layout %s changed", name)
			}
		}
	}
}

// The golden file was put together by hand from the format's description.
func TestSafetensorsGolden(t *testing.T) {
	path := filepath.Join("testdata", "golden.safetensors")
	a, err := LoadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"w":     "float32[2 2] [[1 2] [3 -4]]",
		"b":     "bfloat16[3] [1 -2 0.5]",
		"mask":  "bool[2] [true false]",
		"scale": "float8_e4m3fn[] 1",
		"none":  "int64[0 5] []",
	}
	if len(a.Tensors) != len(want) {
		t.Errorf("%d tensors, want %d", len(a.Tensors), len(want))
	}
	for name, text := range want {
		if x := a.Tensors[name]; x == nil || x.String() != text {
			t.Errorf("%s is %v, want %s", name, x, text)
		}
	}
	if !maps.Equal(a.Metadata, map[string]string{"format": "pt"}) {
		t.Errorf("metadata %v", a.Metadata)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := SaveSafetensors(out, a); err != nil {
		t.Fatal(err)
	}
	if b, err := LoadSafetensors(out); err != nil || !maps.EqualFunc(a.Tensors, b.Tensors, Equal) {
		t.Error(err)
	}
	if list, _ := os.ReadDir(filepath.Dir(out)); len(list) != 1 {
		t.Errorf("saving left %v", list)
	}
}

func TestSafetensorsRefuses(t *testing.T) {
	entry := func(dt, shape, offsets string) string {
		return fmt.Sprintf(`{"dtype":"%s","shape":%s,"data_offsets":%s}`, dt, shape, offsets)
	}
	a, b := entry("U8", "[2]", "[0,2]"), entry("U8", "[2]", "[2,4]")
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"empty", "length", nil},
		{"short length", "length", []byte{1, 0, 0}},
		{"long header", "longer", []byte{0, 0xe1, 0xf5, 5 + 1, 0, 0, 0, 0}},
		{"huge header", "longer", bytes.Repeat([]byte{255}, 8)},
		{"cut header", "within the header", safetensorsFile("{}")[:9]},
		{"no header", "begin with", safetensorsFile("")},
		{"leading space", "begin with", safetensorsFile(" {}")},
		{"array", "begin with", safetensorsFile("[]")},
		{"not UTF-8", "UTF-8", safetensorsFile("{\"\xff\":"+a+"}", 1, 2)},
		{"not closed", "unexpected", safetensorsFile("{")},
		{"after the end", "after its end", safetensorsFile("{}{}")},
		{"twice", "twice", safetensorsFile(`{"a":`+a+`,"\u0061":`+b+`}`, 1, 2, 3, 4)},
		{"field twice", "twice", safetensorsFile(`{"a":{"dtype":"U8","dtype":"U8"}}`)},
		{"overlap", "begins at", safetensorsFile(`{"a":`+a+`,"b":`+entry("U8", "[2]", "[1,3]")+`}`, 1, 2, 3)},
		{"same place", "begins at", safetensorsFile(`{"a":`+a+`,"b":`+a+`}`, 1, 2)},
		{"hole", "begins at", safetensorsFile(`{"a":`+a+`,"b":`+entry("U8", "[1]", "[3,4]")+`}`, 1, 2, 3, 4)},
		{"hole in front", "begins at", safetensorsFile(`{"b":`+b+`}`, 1, 2, 3, 4)},
		{"rest", "after the last", safetensorsFile(`{"a":`+a+`}`, 1, 2, 3)},
		{"cut data", "end before", safetensorsFile(`{"a":`+a+`}`, 1)},
		{"size", "2 bytes", safetensorsFile(`{"a":`+entry("U8", "[2]", "[0,3]")+`}`, 1, 2, 3)},
		{"backwards", "offsets", safetensorsFile(`{"a":` + entry("U8", "[0]", "[2,1]") + `}`)},
		{"overflow", "address space", safetensorsFile(`{"a":` + entry("U8", "[4294967296,4294967296]", "[0,0]") + `}`)},
		{"beyond int", "not a size", safetensorsFile(`{"a":` + entry("U8", "[9223372036854775808]", "[0,0]") + `}`)},
		{"negative", "not a size", safetensorsFile(`{"a":` + entry("U8", "[-1]", "[0,1]") + `}`)},
		{"fraction", "not a size", safetensorsFile(`{"a":` + entry("U8", "[1.0]", "[0,1]") + `}`)},
		{"offsets", "missing", safetensorsFile(`{"a":` + entry("U8", "[1]", "[0]") + `}`)},
		{"shape", "missing", safetensorsFile(`{"a":` + entry("U8", "null", "[0,1]") + `}`)},
		{"type", "F4", safetensorsFile(`{"a":` + entry("F4", "[2]", "[0,1]") + `}`)},
		{"no tensor", "no object", safetensorsFile(`{"a":7}`)},
		{"metadata", "no object", safetensorsFile(`{"__metadata__":null}`)},
		{"metadata value", "no string", safetensorsFile(`{"__metadata__":{"a":1}}`)},
		{"metadata null", "no string", safetensorsFile(`{"__metadata__":{"a":null}}`)},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.file), io.MultiReader(bytes.NewReader(c.file))} {
			x, err := ReadSafetensors(r)
			if err == nil {
				t.Errorf("%s: read %v", c.name, x)
			} else if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %q does not say %q", c.name, err, c.want)
			}
		}
	}
	for name, x := range map[string]*Tensor{
		"z": Must(Zeros(dtype.Complex128, 1)), metadataKey: Must(Zeros(dtype.Int8, 1)), "\xff": Must(Zeros(dtype.Int8, 1)),
	} {
		if err := WriteSafetensors(io.Discard, &Archive{Tensors: map[string]*Tensor{name: x}}); err == nil {
			t.Errorf("%q: written", name)
		}
	}
}

// Readers must accept names in any order, unknown fields, padding, and files without tensors.
func TestSafetensorsAccepts(t *testing.T) {
	for head, want := range map[string]int{
		`{}`:                  0,
		"{ }   ":              0,
		`{"__metadata__":{}}`: 0,
		`{"b":{"data_offsets":[2,4],"more":{"x":[1]},"shape":[1,2],"dtype":"U8"},"a":{"dtype":"I16","shape":[],"data_offsets":[0,2]}}`: 2,
		`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`:                    2,
	} {
		data := []byte{1, 2, 3, 4}
		if !strings.Contains(head, "4]") {
			data = nil
		}
		a, err := ReadSafetensors(bytes.NewReader(safetensorsFile(head, data...)))
		if err != nil || len(a.Tensors) != want {
			t.Errorf("%s: %v %v", head, a, err)
		}
	}
}

func FuzzReadSafetensors(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "golden.safetensors"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(safetensorsFile("{}  "))
	f.Add(safetensorsFile(`{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}`, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ReadSafetensors(bytes.NewReader(data))
		if (a == nil) == (err == nil) {
			t.Fatalf("%v and %v", a, err)
		}
		if err != nil {
			return
		}
		var w bytes.Buffer
		if err := WriteSafetensors(&w, a); err != nil {
			t.Fatal(err)
		}
		b, err := ReadSafetensors(&w)
		if err != nil || !maps.Equal(a.Metadata, b.Metadata) {
			t.Fatalf("%v came back as %v, %v", a, b, err)
		}
		if !maps.EqualFunc(a.Tensors, b.Tensors, func(x, y *Tensor) bool {
			return x.DType() == y.DType() && slices.Equal(x.Shape(), y.Shape()) && bytes.Equal(x.raw(), y.raw())
		}) {
			t.Fatalf("%v came back as %v", a, b)
		}
	})
}
