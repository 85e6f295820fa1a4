package tensor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/testutil"
)

// npyFile puts a file together from its parts.
func npyFile(major byte, dict string, data ...byte) []byte {
	head := append([]byte(npyMagic), major, 0, byte(len(dict)), byte(len(dict)>>8))
	if major > 1 {
		head = append(head, 0, 0)
	}
	return append(append(head, dict...), data...)
}

func TestNPYRoundTrip(t *testing.T) {
	for dt := range npyCodes {
		for _, shape := range shapes {
			for name, make := range layouts {
				x := make(dt, shape)
				number(x)
				var b bytes.Buffer
				if err := WriteNPY(&b, x); err != nil {
					t.Fatal(err)
				}
				if (b.Len()-x.NBytes())%64 != 0 {
					t.Fatalf("%v%v: the elements begin at %d", dt, shape, b.Len()-x.NBytes())
				}
				b.WriteString("next")
				// Read from something that doesn't say its length, too.
				for _, r := range []io.Reader{bytes.NewReader(b.Bytes()), io.MultiReader(bytes.NewReader(b.Bytes()))} {
					y, err := ReadNPY(r)
					if err != nil || !Equal(x, y) || !y.IsContiguous() {
						t.Fatalf("%s %v%v: %v %v", name, dt, shape, y, err)
					}
					if rest, _ := io.ReadAll(r); string(rest) != "next" {
						t.Fatalf("%v%v: %q remains", dt, shape, rest)
					}
				}
				x.Free()
			}
		}
	}
	for _, dt := range []dtype.DType{dtype.BFloat16, dtype.Float8E4M3FN, dtype.Float8E5M2} {
		if err := WriteNPY(io.Discard, Must(Zeros(dt, 1))); err == nil || !strings.Contains(err.Error(), dt.String()) {
			t.Errorf("%v: %v", dt, err)
		}
	}
}

func TestNPYManyDimensions(t *testing.T) {
	shape := make([]int, 30000)
	for i := range shape {
		shape[i] = 1
	}
	var b bytes.Buffer
	if err := WriteNPY(&b, Must(Zeros(dtype.Int8, shape[:20000]...))); err != nil {
		t.Fatal(err)
	}
	if x, err := ReadNPY(&b); err != nil || x.Dim() != 20000 {
		t.Error(err)
	}
	if err := WriteNPY(&b, Must(Zeros(dtype.Int8, shape...))); err == nil {
		t.Error("a header was written that can't be read")
	}
}

func TestNPYForms(t *testing.T) {
	for dict, want := range map[string]string{
		"{'descr': '<i2', 'fortran_order': False, 'shape': (2, 2), }\n":       "int16[2 2] [[1 2] [3 4]]",
		"{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2), }":          "int16[2 2] [[1 3] [2 4]]",
		"{'descr': '>i2', 'fortran_order': False, 'shape': (4,)}":             "int16[4] [256 512 768 1024]",
		"{'descr':'=u2','fortran_order':False,'shape':(4L,)}":                 "uint16[4] [1 2 3 4]",
		"  {\"shape\": (1,4,), \"descr\": '<u4', 'fortran_order': True }  \n": "uint32[1 4] [[131073 262147 0 0]]",
		"{'descr': '|b1', 'fortran_order': False, 'shape': (4,)}":             "bool[4] [true false true false]",
		"{'descr': '>c8', 'fortran_order': False, 'shape': ()}":               "complex64[] (2.388e-38+4.484e-44i)",
		"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4)}":           "float64[0 4] []",
	} {
		for major := byte(1); major <= 3; major++ {
			data := append([]byte{1, 0, 2, 0, 3, 0, 4, 0}, make([]byte, 8)...)
			if strings.Contains(want, "complex") {
				data = []byte{1, 2, 3, 4, 0, 0, 0, 32}
			}
			x, err := ReadNPY(bytes.NewReader(npyFile(major, dict, data...)))
			if err != nil {
				t.Errorf("%s: %v", dict, err)
			} else if got := fmt.Sprint(x); got != want {
				t.Errorf("%s: %s, want %s", dict, got, want)
			}
		}
	}
	x, err := ReadNPY(bytes.NewReader(npyFile(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 0, 7)))
	if err != nil || x.raw()[1] != 1 {
		t.Errorf("a true value became %v, %v", x, err)
	}
}

func TestNPYRefuses(t *testing.T) {
	ok := "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}"
	for _, c := range []struct {
		name, want string
		file       []byte
	}{
		{"empty", "ends", nil},
		{"magic", "magic", []byte("\x93NUMPX\x01\x00\x00\x00")},
		{"version", "version 4.0", npyFile(4, ok, 1, 2, 3, 4)},
		{"cut length", "length", npyFile(2, ok)[:10]},
		{"cut header", "within the header", npyFile(1, ok)[:30]},
		{"long header", "longer", append([]byte(npyMagic), 2, 0, 255, 255, 255, 255)},
		{"cut data", "end before", npyFile(1, ok, 1, 2, 3)},
		{"bfloat16", "V2", npyFile(1, strings.Replace(ok, "<i2", "<V2", 1), 1, 2, 3, 4)},
		{"object", "|O", npyFile(1, strings.Replace(ok, "<i2", "|O", 1), 1, 2, 3, 4)},
		{"no type", `""`, npyFile(1, strings.Replace(ok, "<i2", "", 1), 1, 2, 3, 4)},
		{"structured", "structured", npyFile(1, "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,)}")},
		{"huge", "end before", npyFile(1, strings.Replace(ok, "2,", "2, 1000000000000", 1))},
		{"overflow", "address space", npyFile(1, strings.Replace(ok, "2,", "9223372036854775807, 2", 1))},
		{"beyond int", "dimension", npyFile(1, strings.Replace(ok, "2,", "9223372036854775808,", 1))},
		{"negative", "dimension", npyFile(1, strings.Replace(ok, "2,", "-2,", 1))},
		{"no tuple", "(", npyFile(1, strings.Replace(ok, "(2,)", "2", 1))},
		{"no comma in tuple", "comma", npyFile(1, strings.Replace(ok, "2,", "2", 1))},
		{"missing comma", "comma", npyFile(1, strings.Replace(ok, "2,", "2 2", 1))},
		{"missing key", "not all", npyFile(1, "{'descr': '<i2', 'shape': (2,)}")},
		{"unknown key", "unknown key", npyFile(1, "{'descr': '<i2', 'more': (2,)}")},
		{"key twice", "twice", npyFile(1, "{'descr': '<i2', 'descr': '<i2'}")},
		{"after the end", "nothing more", npyFile(1, ok+"x")},
		{"unterminated", "string", npyFile(1, "{'descr")},
		{"not boolean", "True or False", npyFile(1, strings.Replace(ok, "False", "0", 1))},
		{"no dictionary", "{", npyFile(1, "[]")},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.file), io.MultiReader(bytes.NewReader(c.file))} {
			x, err := ReadNPY(r)
			if err == nil {
				t.Errorf("%s: read %v", c.name, x)
			} else if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %q does not say %q", c.name, err, c.want)
			}
		}
	}
}

// A file larger than what a header alone may claim, from a reader that doesn't tell its length.
func TestReadGrows(t *testing.T) {
	x := Must(Zeros(dtype.Int32, 5, 1<<20))
	s, _ := Slice[int32](x)
	for i := range s {
		s[i] = int32(i * 7)
	}
	var b bytes.Buffer
	if err := WriteNPY(&b, x); err != nil {
		t.Fatal(err)
	}
	y, err := ReadNPY(io.MultiReader(&b))
	if err != nil || !Equal(x, y) {
		t.Error(err)
	}
}

func FuzzReadNPY(f *testing.F) {
	f.Add(npyFile(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 1), }\n", 1, 2, 3, 4))
	f.Add(npyFile(2, "{'descr': '>c8', 'fortran_order': True, 'shape': (1L,)}", 1, 2, 3, 4, 5, 6, 7, 8))
	f.Add(npyFile(3, "{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': ()}"))
	f.Add(npyFile(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (0,)}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := ReadNPY(bytes.NewReader(data))
		if (x == nil) == (err == nil) {
			t.Fatalf("%v and %v", x, err)
		}
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteNPY(&b, x); err != nil {
			t.Fatal(err)
		}
		y, err := ReadNPY(&b)
		if err != nil || y.DType() != x.DType() || !bytes.Equal(x.raw(), y.raw()) {
			t.Fatalf("%v came back as %v, %v", x, y, err)
		}
	})
}

// NumPy reads what we write, and we read what it writes.
func TestNPYAgainstNumPy(t *testing.T) {
	dir := t.TempDir()
	for dt := range npyCodes {
		for i, shape := range shapes {
			x := layouts["transposed"](dt, shape)
			number(x)
			if err := SaveNPY(filepath.Join(dir, fmt.Sprintf("%v-%d.npy", dt, i)), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	out, err := testutil.PythonCommand(t, `
import glob, json, sys, warnings
import numpy as np
facts = {}
for path in glob.glob(sys.argv[1] + "/*.npy"):
    a = np.load(path)
    facts[path] = [a.dtype.name, list(a.shape), bool((a.ravel() == (np.arange(a.size) % 2).astype(a.dtype)).all())]
    stem = path[:-4]
    np.save(stem + ".fortran", np.asarray(a, order="F"))
    np.save(stem + ".big", a.astype(a.dtype.newbyteorder(">")))
    for version in ((1, 0), (2, 0), (3, 0)):
        with open("%s.v%d.npy" % (stem, version[0]), "wb") as f, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.lib.format.write_array(f, a, version)
print(json.dumps(facts))
`, dir).Output()
	if err != nil {
		t.Fatalf("python: %v", err)
	}
	var facts map[string][3]json.RawMessage
	if err := json.Unmarshal(out, &facts); err != nil {
		t.Fatal(err)
	}
	for dt := range npyCodes {
		for i, shape := range shapes {
			stem := filepath.Join(dir, fmt.Sprintf("%v-%d", dt, i))
			dims, _ := json.Marshal(append([]int{}, shape...))
			got := facts[stem+".npy"]
			if string(got[0]) != fmt.Sprintf("%q", dt) || strings.ReplaceAll(string(got[1]), " ", "") != string(dims) ||
				string(got[2]) != "true" {
				t.Errorf("NumPy sees %v%v as %s", dt, shape, got)
			}
			want := Must(Empty(dt, shape...))
			number(want)
			for _, form := range []string{".fortran", ".big", ".v1", ".v2", ".v3"} {
				x, err := LoadNPY(stem + form + ".npy")
				if err != nil || !Equal(x, want) {
					t.Errorf("%v: %v, want %v", err, x, want)
				}
			}
		}
	}
}
