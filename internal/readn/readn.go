// Package readn reads as many bytes as a peer has announced, and believes it no further than they come.
//
//	payload, err := readn.Bytes(conn, n)
package readn

import "io"

// First is how much memory an announcement gets by itself.
const First = 64 << 10

// Bytes reads n bytes into memory that grows with what has arrived: it's never more than First, or twice that. The
// error is io.EOF if nothing has come, and io.ErrUnexpectedEOF if not all has.
func Bytes(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, First))
	for done := 0; ; {
		got, err := io.ReadFull(r, b[done:])
		if done += got; err != nil {
			if err == io.EOF && done > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if done == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-done, done))...)
	}
}
