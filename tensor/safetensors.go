package tensor

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/internal/sys"
)

// The format: https://huggingface.co/docs/safetensors. A length, a JSON header, and the elements of all tensors without
// gaps.

// safetensorsMaxHeader is the limit that the format sets.
const safetensorsMaxHeader = 100_000_000

const metadataKey = "__metadata__"

// safetensorsNames are the format's names of our types. It has none for complex128.
var safetensorsNames = map[dtype.DType]string{
	dtype.Bool: "BOOL", dtype.Uint8: "U8", dtype.Uint16: "U16", dtype.Uint32: "U32", dtype.Uint64: "U64",
	dtype.Int8: "I8", dtype.Int16: "I16", dtype.Int32: "I32", dtype.Int64: "I64",
	dtype.Float16: "F16", dtype.BFloat16: "BF16", dtype.Float8E4M3FN: "F8_E4M3", dtype.Float8E5M2: "F8_E5M2",
	dtype.Float32: "F32", dtype.Float64: "F64", dtype.Complex64: "C64",
}

// Archive is the contents of a safetensors file: named tensors and free text.
type Archive struct {
	Tensors  map[string]*Tensor
	Metadata map[string]string // nil if there is none
}

// entry is one tensor's line in the header.
type entry struct {
	name       string
	dt         dtype.DType
	shape      []int
	begin, end int
}

// ReadSafetensors reads a safetensors file up to its end into contiguous tensors in Go memory. It refuses what the
// format forbids: a header beyond 100 MB, names that come twice, tensors that overlap or leave holes, and data beyond
// the last.
func ReadSafetensors(r io.Reader) (*Archive, error) {
	a, err := readSafetensors(r)
	if err != nil {
		return nil, fmt.Errorf("tensor: safetensors: %w", err)
	}
	return a, nil
}

func readSafetensors(r io.Reader) (*Archive, error) {
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("the file ends within the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > safetensorsMaxHeader {
		return nil, fmt.Errorf("a header of %d bytes is longer than %d", n, safetensorsMaxHeader)
	}
	head, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return nil, err
	}
	if uint64(len(head)) != n {
		return nil, fmt.Errorf("the file ends within the header: %d bytes of %d", len(head), n)
	}
	entries, metadata, err := parseSafetensorsHeader(head)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	a := &Archive{Tensors: make(map[string]*Tensor, len(entries)), Metadata: metadata}
	for _, e := range entries {
		t, err := readElements(r, e.dt, e.shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", e.name, err)
		}
		a.Tensors[e.name] = t
	}
	switch _, err := io.ReadFull(r, size[:1]); err {
	case io.EOF:
		return a, nil
	case nil:
		return nil, errors.New("there are data after the last tensor")
	default:
		return nil, err
	}
}

// parseSafetensorsHeader returns the tensors in the order of their data, having checked that they fill it.
func parseSafetensorsHeader(head []byte) ([]entry, map[string]string, error) {
	if len(head) == 0 || head[0] != '{' {
		return nil, nil, errors.New("it does not begin with {")
	}
	if !utf8.Valid(head) { // which the JSON decoder would replace, so that two names could become one
		return nil, nil, errors.New("it is not UTF-8")
	}
	var entries []entry
	var metadata map[string]string
	err := decodeObject(head, func(key string, value json.RawMessage) (err error) {
		if key == metadataKey {
			metadata, err = parseMetadata(value)
			return err
		}
		e, err := parseEntry(value)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		e.name = key
		entries = append(entries, e)
		return nil
	})
	if errors.Is(err, io.EOF) { // the header's end, not the file's
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at := 0
	for _, e := range entries {
		if e.begin != at {
			return nil, nil, fmt.Errorf("tensor %q begins at %d, the one before it ends at %d", e.name, e.begin, at)
		}
		at = e.end
	}
	return entries, metadata, nil
}

// decodeObject calls f for every member of a JSON object, and refuses names that come twice.
func decodeObject(text []byte, f func(key string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil {
		return err
	} else if open != json.Delim('{') {
		return fmt.Errorf("%.20q is no object", text)
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the decoder allows nothing else here
		if seen[name] {
			return fmt.Errorf("name %q comes twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if rest := bytes.TrimRight(text[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("%.20q after its end", rest)
	}
	return nil
}

func parseMetadata(value []byte) (map[string]string, error) {
	metadata := map[string]string{}
	err := decodeObject(value, func(key string, value json.RawMessage) error {
		var text *string
		if err := json.Unmarshal(value, &text); err != nil || text == nil {
			return fmt.Errorf("metadata %q is no string", key)
		}
		metadata[key] = *text
		return nil
	})
	return metadata, err
}

func parseEntry(value []byte) (e entry, err error) {
	var shape, offsets []json.RawMessage
	var name string
	err = decodeObject(value, func(key string, value json.RawMessage) error {
		switch key {
		case "dtype":
			return json.Unmarshal(value, &name)
		case "shape":
			return json.Unmarshal(value, &shape)
		case "data_offsets":
			return json.Unmarshal(value, &offsets)
		}
		return nil // readers ignore what they don't know
	})
	if err != nil {
		return e, err
	}
	for dt, n := range safetensorsNames {
		if n == name {
			e.dt = dt
		}
	}
	if e.dt == dtype.Invalid {
		return e, fmt.Errorf("element type %q is not supported", name)
	}
	if shape == nil || len(offsets) != 2 {
		return e, errors.New("the shape or the two offsets are missing")
	}
	if e.shape, err = parseInts(shape); err != nil {
		return e, err
	}
	ends, err := parseInts(offsets)
	if err != nil {
		return e, err
	}
	e.begin, e.end = ends[0], ends[1]
	n, err := sizeOf(e.dt, e.shape)
	if err != nil {
		return e, err
	}
	if e.end < e.begin || e.end-e.begin != n*e.dt.Size() {
		return e, fmt.Errorf("offsets %d to %d for shape %v of %v, which has %d bytes", e.begin, e.end, e.shape, e.dt,
			n*e.dt.Size())
	}
	return e, nil
}

func parseInts(list []json.RawMessage) ([]int, error) {
	ints := make([]int, len(list))
	for i, raw := range list {
		v, err := strconv.ParseUint(string(raw), 10, strconv.IntSize-1)
		if err != nil {
			return nil, fmt.Errorf("%s is not a size", raw)
		}
		ints[i] = int(v)
	}
	return ints, nil
}

// LoadSafetensors reads a safetensors file.
func LoadSafetensors(path string) (*Archive, error) {
	f, _, err := sys.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	a, err := ReadSafetensors(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// WriteSafetensors writes tensors and metadata; equal archives give equal bytes. Wide elements come first, so that all
// are aligned. Complex128, for which the format has no name, is refused, and so is a tensor called "__metadata__".
func WriteSafetensors(w io.Writer, a *Archive) error {
	names := slices.Collect(maps.Keys(a.Tensors))
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(a.Tensors[y].dt.Size(), a.Tensors[x].dt.Size()), cmp.Compare(x, y))
	})
	head := []byte("{")
	member := func(key string, value any) error {
		if !utf8.ValidString(key) {
			return fmt.Errorf("tensor: safetensors: the name %q is not UTF-8", key)
		}
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if len(head) > 1 {
			head = append(head, ',')
		}
		head = append(append(append(head, k...), ':'), v...)
		return nil
	}
	if a.Metadata != nil {
		if err := member(metadataKey, a.Metadata); err != nil {
			return err
		}
	}
	at := 0
	for _, name := range names {
		t := a.Tensors[name]
		code, ok := safetensorsNames[t.dt]
		if !ok {
			return fmt.Errorf("tensor: safetensors has no element type for %v, which %q has", t.dt, name)
		}
		if name == metadataKey {
			return fmt.Errorf("tensor: safetensors: %q is not a name for a tensor", name)
		}
		if err := member(name, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{code, append([]int{}, t.shape...), [2]int{at, at + t.nbytes}}); err != nil {
			return err
		}
		at += t.nbytes
	}
	head = append(head, '}')
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	if len(head) > safetensorsMaxHeader {
		return fmt.Errorf("tensor: safetensors: a header of %d bytes is longer than %d", len(head), safetensorsMaxHeader)
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)); err != nil {
		return err
	}
	for _, name := range names {
		if err := writeElements(w, a.Tensors[name]); err != nil {
			return err
		}
	}
	return nil
}

// SaveSafetensors writes a safetensors file, which replaces path when it is complete.
func SaveSafetensors(path string, a *Archive) error {
	return saveFile(path, func(w io.Writer) error { return WriteSafetensors(w, a) })
}
