package tensor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/chorus-comms/chorus/dtype"
)

// trusted is how much memory a header alone may claim. Beyond it, memory grows with the data that really arrive.
const trusted = 16 << 20

// readElements reads a contiguous tensor's elements.
func readElements(r io.Reader, dt dtype.DType, shape []int) (*Tensor, error) {
	n, err := sizeOf(dt, shape)
	if err != nil {
		return nil, err
	}
	total := n * dt.Size()
	left := remaining(r)
	if left >= 0 && left < int64(total) {
		return nil, truncated(io.ErrUnexpectedEOF, total)
	}
	var t *Tensor
	if left >= 0 || total <= trusted {
		if t, err = Empty(dt, shape...); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(r, t.raw()); err != nil {
			return nil, truncated(err, total)
		}
	} else {
		// complex128, the widest element, for the alignment.
		var data []complex128
		for have := 0; have < total; {
			more := min(max(trusted, have), total-have)
			grown := make([]complex128, (have+more+15)/16)
			copy(grown, data)
			data = grown
			if _, err := io.ReadFull(r, asBytes(data)[have:have+more]); err != nil {
				return nil, truncated(err, total)
			}
			have += more
		}
		if t, err = FromBytes(dt, asBytes(data)[:total], shape...); err != nil {
			return nil, err
		}
	}
	if dt == dtype.Bool {
		for i, v := range t.raw() { // any byte but 0 is true; in memory true is 1
			if v > 1 {
				t.raw()[i] = 1
			}
		}
	}
	return t, nil
}

func asBytes(data []complex128) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), 16*len(data))
}

func truncated(err error, total int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the data end before %d bytes of elements: %w", total, io.ErrUnexpectedEOF)
	}
	return err
}

// writeElements writes a tensor's elements in row-major order.
func writeElements(w io.Writer, t *Tensor) error {
	if err := t.hostAccess("write elements"); err != nil {
		return err
	}
	c, err := t.Contiguous()
	if err != nil {
		return err
	}
	_, err = w.Write(c.raw())
	keep(c)
	return err
}

// saveFile writes a file beside path and moves it there when it is complete.
func saveFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = write(f); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// remaining is how many bytes a file or an in-memory reader still holds, or -1 if it doesn't say.
func remaining(r io.Reader) int64 {
	switch r := r.(type) {
	case interface{ Len() int }:
		return int64(r.Len())
	case *os.File:
		st, err := r.Stat()
		pos, err2 := r.Seek(0, io.SeekCurrent)
		if err == nil && err2 == nil && st.Mode().IsRegular() {
			return st.Size() - pos
		}
	}
	return -1
}
