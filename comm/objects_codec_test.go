package comm_test

import (
	"bytes"
	"testing"

	"github.com/chorus-comms/chorus/comm"
)

// FuzzCodec decodes what another rank may have sent instead of an object: it's an error, or a value that encodes again.
func FuzzCodec(f *testing.F) {
	type object struct {
		Name   string
		Number int
		List   []float64
		Map    map[string][]byte
		Next   *object
	}
	codecs := []comm.Codec{comm.Gob, comm.JSON}
	for i, c := range codecs {
		b, err := c.Encode(object{Name: "x", Number: -1, List: []float64{1, 2}, Map: map[string][]byte{"k": {1}},
			Next: &object{Name: "y"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, i == 0)
		f.Add(b[:len(b)/2], i == 0)
		f.Add(bytes.Repeat(b, 2), i == 0)
	}
	f.Add([]byte{0xf8, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, true) // a message of many bytes
	f.Fuzz(func(t *testing.T, data []byte, isGob bool) {
		c := codecs[1]
		if isGob {
			c = codecs[0]
		}
		var v object
		if c.Decode(data, &v) != nil {
			return
		}
		if _, err := c.Encode(v); err != nil {
			t.Error(err)
		}
	})
}
