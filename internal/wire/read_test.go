package wire

import (
	"bytes"
	"io"
	"runtime"
	"testing"
)

func TestReadN(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789"), FirstRead)
	for _, n := range []int{0, 1, FirstRead, FirstRead + 1, 3*FirstRead + 7, len(all)} {
		in := bytes.NewReader(all)
		if b, err := ReadN(in, n); err != nil || !bytes.Equal(b, all[:n]) || in.Len() != len(all)-n {
			t.Errorf("%d bytes: %d, %v", n, len(b), err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if b, err := ReadN(bytes.NewReader(all), 1<<45); b != nil || err != io.ErrUnexpectedEOF {
		t.Errorf("too few: %d, %v", len(b), err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(8*len(all)) {
		t.Errorf("%d bytes took %d", len(all), took)
	}
	if _, err := ReadN(bytes.NewReader(nil), 5); err != io.EOF {
		t.Errorf("nothing: %v", err)
	}
}
