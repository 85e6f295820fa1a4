package mylib

import "unsafe"

// Number is what AllReduce sums up.
type Number interface {
	float32 | float64 | int32 | int64
}

// AllReduce sets out to the sum of in over some ranks, the same bits on all of them, each of which calls it with the
// same ranks and tag; it waits for them. When stop is closed it returns ErrCanceled.
func AllReduce[T Number](c *Comm, ranks []int, tag Tag, out, in []T, stop <-chan struct{}) error {
	bytes := func(x []T) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
	}
	call := func(f func(r *Request), peer int, x []T) error {
		done := make(chan error, 1)
		r := &Request{Peer: peer, Tag: tag, Body: bytes(x), Done: func(_, _ int, err error) { done <- err }}
		f(r)
		select {
		case err := <-done:
			return err
		case <-stop:
			c.Cancel(r)
			<-done
			return ErrCanceled
		}
	}
	root := ranks[0]
	if c.rank != root {
		if err := call(c.Send, root, in); err != nil {
			return err
		}
		return call(c.Recv, root, out)
	}
	copy(out, in)
	theirs := make([]T, len(in))
	for _, r := range ranks[1:] {
		if err := call(c.Recv, r, theirs); err != nil {
			return err
		}
		for i, x := range theirs {
			out[i] += x
		}
	}
	for _, r := range ranks[1:] {
		if err := call(c.Send, r, out); err != nil {
			return err
		}
	}
	return nil
}
